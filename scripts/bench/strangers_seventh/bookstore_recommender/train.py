"""Two-tower style rating model for an online bookstore."""
import json
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    customers: int = 180_000
    books: int = 60_000
    interactions: int = 480_000
    holdout: int = 40_000
    dim: int = 48
    hidden: tuple = (192, 96)
    batch_size: int = 2048
    epochs: int = 1
    eval_every: int = 80
    log_every: int = 20
    lr: float = 0.02
    seed: int = 11


def simulate_ratings(cfg):
    rng = np.random.default_rng(cfg.seed)
    total = cfg.interactions + cfg.holdout
    customers = rng.integers(0, cfg.customers, total)
    popularity = rng.zipf(1.3, total) % cfg.books
    uniform = rng.integers(0, cfg.books, total)
    books = np.where(rng.random(total) < 0.5, popularity, uniform)
    customer_bias = rng.normal(0, 0.4, cfg.customers)
    book_bias = rng.normal(0, 0.6, cfg.books)
    price = rng.gamma(2.0, 8.0, cfg.books)
    month = rng.integers(0, 12, total)
    score = 3.6 + customer_bias[customers] + book_bias[books] - 0.01 * price[books] + rng.normal(0, 0.3, total)
    dense = np.stack([
        np.log1p(price[books]),
        np.sin(2 * np.pi * month / 12),
        np.cos(2 * np.pi * month / 12),
    ], axis=1)
    return {
        "customer": torch.from_numpy(customers),
        "book": torch.from_numpy(books),
        "dense": torch.from_numpy(dense.astype(np.float32)),
        "rating": torch.from_numpy(score.clip(1, 5).astype(np.float32)),
    }


def split(table, cfg):
    order = torch.randperm(len(table["rating"]))
    train = {name: column[order[cfg.holdout:]] for name, column in table.items()}
    valid = {name: column[order[:cfg.holdout]] for name, column in table.items()}
    return train, valid


def batches(table, size, shuffle):
    count = len(table["rating"])
    order = torch.randperm(count) if shuffle else torch.arange(count)
    for chunk in order.split(size):
        if shuffle and len(chunk) < size:
            return
        yield {name: column[chunk] for name, column in table.items()}


class RatingModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.customer = nn.Embedding(cfg.customers, cfg.dim)
        self.book = nn.Embedding(cfg.books, cfg.dim)
        nn.init.normal_(self.customer.weight, std=0.05)
        nn.init.normal_(self.book.weight, std=0.05)
        layers, width = [], 3 * cfg.dim + 3
        for hidden in cfg.hidden:
            layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0.1)]
            width = hidden
        layers.append(nn.Linear(width, 1))
        self.mlp = nn.Sequential(*layers)
        self.offset = nn.Parameter(torch.tensor(3.5))

    def forward(self, batch):
        customer = self.customer(batch["customer"])
        book = self.book(batch["book"])
        features = torch.cat([customer, book, customer * book, batch["dense"]], dim=1)
        return self.offset + self.mlp(features).squeeze(1)


@torch.no_grad()
def evaluate(model, table, size):
    model.eval()
    squared = absolute = 0.0
    for batch in batches(table, size, shuffle=False):
        error = model(batch) - batch["rating"]
        squared += error.square().sum().item()
        absolute += error.abs().sum().item()
    model.train()
    count = len(table["rating"])
    return (squared / count) ** 0.5, absolute / count


def main():
    start = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train, valid = split(simulate_ratings(cfg), cfg)
    print(f"{len(train['rating'])} ratings for training, {len(valid['rating'])} held out")

    model = RatingModel(cfg)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")
    optimizer = torch.optim.Adagrad(model.parameters(), lr=cfg.lr)

    losses, ends = [], []
    for epoch in range(cfg.epochs):
        for batch in batches(train, cfg.batch_size, shuffle=True):
            loss = F.mse_loss(model(batch), batch["rating"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            ends.append(time.perf_counter())
            step = len(losses)
            if step % cfg.log_every == 0:
                print(f"epoch {epoch} step {step} mse {np.mean(losses[-cfg.log_every:]):.4f}")
            if step % cfg.eval_every == 0:
                rmse, mae = evaluate(model, valid, 8192)
                print(f"step {step} held out: rmse {rmse:.4f} mae {mae:.4f}")

    with tempfile.TemporaryDirectory(prefix="bookstore_") as folder:
        path = os.path.join(folder, "rating_model.pt")
        torch.save(model.state_dict(), path)
        print(f"saved {os.path.getsize(path) / 1e6:.0f} MB")
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(ends))),
                                  "fit_s": time.perf_counter() - start,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
