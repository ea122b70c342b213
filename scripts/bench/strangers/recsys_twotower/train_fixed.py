"""Two-tower retrieval model with in-batch negatives on synthetic interactions."""
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 13
USERS, ITEMS, GENRES = 60_000, 15_000, 40
DIM = 64
BATCH = 768
STEPS = 280
TEMPERATURE = 0.07


def make_interactions(n=300_000):
    rng = np.random.default_rng(SEED)
    users = rng.integers(0, USERS, n)
    taste = users % GENRES
    items = (rng.integers(0, ITEMS // GENRES, n) * GENRES + taste) % ITEMS
    noise = rng.random(n) < 0.2
    items[noise] = rng.integers(0, ITEMS, noise.sum())
    return torch.from_numpy(users), torch.from_numpy(items)


class Tower(nn.Module):
    def __init__(self, n_ids, n_side):
        super().__init__()
        self.ids = nn.Embedding(n_ids, DIM, sparse=True)
        self.side = nn.Embedding(n_side, 16)
        nn.init.normal_(self.ids.weight, std=0.05)
        self.mlp = nn.Sequential(
            nn.Linear(DIM + 16, 256), nn.ReLU(),
            nn.Linear(256, 256), nn.ReLU(),
            nn.Linear(256, 64),
        )

    def forward(self, ids, side):
        h = torch.cat([self.ids(ids), self.side(side)], dim=-1)
        return F.normalize(self.mlp(h), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = Tower(USERS, 24)
        self.item = Tower(ITEMS, GENRES)

    def forward(self, u, i):
        return self.user(u, u % 24) @ self.item(i, i % GENRES).T / TEMPERATURE


def main():
    torch.manual_seed(SEED)
    users, items = make_interactions()
    model = TwoTower()
    opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
    gen = torch.Generator().manual_seed(SEED)
    target = torch.arange(BATCH)

    losses = []
    start = time.perf_counter()
    for step in range(1, STEPS + 1):
        idx = torch.randint(len(users), (BATCH,), generator=gen)
        logits = model(users[idx], items[idx])
        loss = F.cross_entropy(logits, target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.item())
        if step == 20:
            t20 = time.perf_counter()
        if step % 70 == 0:
            print(f"step {step} loss {np.mean(losses[-70:]):.4f}")
    end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (end - t20) / (STEPS - 20),
        "fit_s": end - start,
        "loss": float(np.mean(losses[-30:])),
    }))


if __name__ == "__main__":
    main()
