"""Cuisine of a recipe from its bag of ingredients."""
import argparse
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CUISINES = 12


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--recipes", type=int, default=4000)
    p.add_argument("--ingredients", type=int, default=4000)
    p.add_argument("--batch", type=int, default=250)
    p.add_argument("--epochs", type=int, default=14)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=4)
    return p.parse_args()


def write_recipes(n, ingredients, seed):
    """Raw recipes as a user would type them: ingredients by commas."""
    rng = np.random.default_rng(seed)
    names = np.array([f"ingredient {i:x}" for i in range(ingredients)])
    cuisine = rng.integers(CUISINES, size=n)
    texts = []
    for c in cuisine:
        own = rng.integers(c * 300, c * 300 + 350, size=8) % ingredients
        common = rng.integers(ingredients, size=rng.integers(6, 14))
        texts.append(", ".join(names[np.concatenate([own, common])]))
    return texts, torch.from_numpy(cuisine)


def tokenize(text):
    return [part.strip().lower() for part in text.split(",")]


def build_vocabulary(texts):
    vocabulary = []
    for text in texts:
        for word in tokenize(text):
            if word not in vocabulary:
                vocabulary.append(word)
    return vocabulary


def encode(texts, vocabulary):
    return [torch.tensor([vocabulary.index(word) for word in tokenize(text)]) for text in texts]


class CuisineNet(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, dim, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(dim, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU(),
                                 nn.Linear(512, CUISINES))

    def forward(self, words, offsets):
        return self.mlp(self.bag(words, offsets))


def batches(bags, cuisine, size):
    order = torch.randperm(len(bags)).tolist()
    for at in range(0, len(order) - size + 1, size):
        chosen = order[at:at + size]
        rows = [bags[i] for i in chosen]
        lengths = torch.tensor([0] + [len(r) for r in rows[:-1]])
        yield torch.cat(rows), lengths.cumsum(0), cuisine[chosen]


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    texts, cuisine = write_recipes(args.recipes, args.ingredients, args.seed)

    stamps, losses = [], []
    start = time.perf_counter()
    vocabulary = build_vocabulary(texts)
    bags = encode(texts, vocabulary)
    print(f"{len(vocabulary)} ingredients in {len(bags)} recipes", flush=True)
    model = CuisineNet(len(vocabulary), args.dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        for words, offsets, target in batches(bags, cuisine, args.batch):
            loss = F.cross_entropy(model(words, offsets), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            stamps.append(time.perf_counter())
        print(f"epoch {epoch} loss {losses[-1]:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
