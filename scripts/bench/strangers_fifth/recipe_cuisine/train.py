"""Predict the cuisine of a recipe from its ingredient list and instructions."""
import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

SYLLABLES = "ba co du fe gi ho ju ka le mi no pu ra se ti vo wa xi ye zu".split()


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--recipes", type=int, default=5000)
    p.add_argument("--cuisines", type=int, default=12)
    p.add_argument("--words", type=int, default=3500)
    p.add_argument("--batch-size", type=int, default=48)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--emb", type=int, default=96)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=13)
    return p.parse_args()


def write_corpus(path, args):
    rng = np.random.default_rng(args.seed)
    words = set()
    while len(words) < args.words:
        words.add("".join(rng.choice(SYLLABLES, rng.integers(2, 5))))
    words = np.array(sorted(words))
    topics = [rng.choice(args.words, args.words // 10, replace=False) for _ in range(args.cuisines)]
    with open(path, "w") as f:
        for _ in range(args.recipes):
            label = int(rng.integers(args.cuisines))
            n = int(rng.integers(24, 49))
            k = n // 5
            ids = np.concatenate([rng.choice(topics[label], k), rng.integers(0, args.words, n - k)])
            rng.shuffle(ids)
            f.write(json.dumps({"cuisine": label, "text": " ".join(words[ids])}) + "\n")


def read_corpus(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


class Vocabulary:
    PAD, UNK = 0, 1

    def __init__(self, min_count=2):
        self.min_count = min_count
        self.tokens = ["<pad>", "<unk>"]
        self.counts = []
        self.lookup = {}

    def fit(self, texts):
        seen = []
        for text in texts:
            for token in text.split():
                if token not in seen:
                    seen.append(token)
                    self.counts.append(0)
                self.counts[seen.index(token)] += 1
        self.tokens += [t for t, c in zip(seen, self.counts) if c >= self.min_count]
        self.lookup = {t: i for i, t in enumerate(self.tokens)}
        return self

    def encode(self, text):
        return [self.lookup.get(t, self.UNK) for t in text.split()]

    def __len__(self):
        return len(self.tokens)


class RecipeDataset(Dataset):
    def __init__(self, records, vocab):
        self.ids = [torch.tensor(vocab.encode(r["text"])) for r in records]
        self.labels = [r["cuisine"] for r in records]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.labels[i]


def collate(batch):
    ids, labels = zip(*batch)
    return pad_sequence(ids, batch_first=True, padding_value=Vocabulary.PAD), torch.tensor(labels)


class CuisineNet(nn.Module):
    def __init__(self, vocab_size, args):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, args.emb, padding_idx=0)
        self.rnn = nn.GRU(args.emb, args.hidden, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * args.hidden, 1)
        self.out = nn.Linear(2 * args.hidden, args.cuisines)
        self.drop = nn.Dropout(0.2)

    def forward(self, ids):
        mask = ids == 0
        h, _ = self.rnn(self.drop(self.emb(ids)))
        w = self.score(h).squeeze(-1).masked_fill(mask, float("-inf")).softmax(1)
        return self.out(self.drop((w.unsqueeze(-1) * h).sum(1)))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = total = 0
    for ids, labels in loader:
        correct += (model(ids).argmax(1) == labels).sum().item()
        total += len(labels)
    model.train()
    return correct / total


def main():
    t_begin = time.perf_counter()
    args = parse_args()
    torch.manual_seed(args.seed)
    workdir = tempfile.mkdtemp(prefix="recipes_")
    corpus = os.path.join(workdir, "recipes.jsonl")
    write_corpus(corpus, args)
    records = read_corpus(corpus)
    n_val = len(records) // 8
    vocab = Vocabulary().fit(r["text"] for r in records[:-n_val])
    print(f"{len(records)} recipes, vocabulary {len(vocab)}", flush=True)
    train = DataLoader(RecipeDataset(records[:-n_val], vocab), args.batch_size, shuffle=True,
                       drop_last=True, collate_fn=collate)
    val = DataLoader(RecipeDataset(records[-n_val:], vocab), 200, collate_fn=collate)

    model = CuisineNet(len(vocab), args)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses, times = [], []
    for epoch in range(args.epochs):
        t = time.perf_counter()
        for step, (ids, labels) in enumerate(train):
            loss = F.cross_entropy(model(ids), labels)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
            times.append(time.perf_counter() - t)
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {np.mean(losses[-50:]):.3f}", flush=True)
            t = time.perf_counter()
        print(f"epoch {epoch} val acc {evaluate(model, val):.3f}")
        torch.save(model.state_dict(), os.path.join(workdir, f"epoch{epoch}.pt"))
    print("RESULT " + json.dumps({"step_s": float(np.median(times)),
                                  "fit_s": time.perf_counter() - t_begin,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
