"""Route customer support tickets to departments with a small transformer encoder."""
import copy
import json
import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

DEPARTMENTS = ["billing", "shipping", "returns", "account", "technical", "sales", "legal", "other"]


@dataclass
class Config:
    tickets: int = 1024
    val_tickets: int = 1200
    vocab_size: int = 3000
    max_len: int = 40
    dim: int = 128
    heads: int = 4
    layers: int = 2
    batch_size: int = 32
    epochs: int = 5
    lr: float = 5e-4
    log_every: int = 20
    seed: int = 5


def write_tickets(count, rng):
    shared = [f"w{i}" for i in range(2200)]
    special = {d: [f"{d}{i}" for i in range(90)] for d in DEPARTMENTS}
    tickets = []
    for i in range(count):
        department = DEPARTMENTS[i % len(DEPARTMENTS)]
        length = int(rng.integers(18, 44))
        common = rng.zipf(1.4, length) % len(shared)
        pick = rng.integers(0, 90, length)
        own = rng.random(length) < 0.25
        words = [special[department][p] if o else shared[c] for c, p, o in zip(common, pick, own)]
        tickets.append((" ".join(words), department))
    return tickets


def build_vocab(tickets, size):
    counts = Counter(word for text, _ in tickets for word in text.split())
    return {word: i + 2 for i, (word, _) in enumerate(counts.most_common(size - 2))}


def encode(tickets, vocab, max_len):
    tokens = torch.zeros(len(tickets), max_len, dtype=torch.long)
    for row, (text, _) in enumerate(tickets):
        ids = [vocab.get(word, 1) for word in text.split()][:max_len]
        tokens[row, :len(ids)] = torch.tensor(ids)
    labels = torch.tensor([DEPARTMENTS.index(department) for _, department in tickets])
    return TensorDataset(tokens, labels)


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.feed = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, dim))
        return x + self.feed(self.norm2(x))


class TicketRouter(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.word = nn.Embedding(cfg.vocab_size, cfg.dim, padding_idx=0)
        self.position = nn.Parameter(torch.randn(cfg.max_len, cfg.dim) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(cfg.dim, cfg.heads) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, len(DEPARTMENTS))

    def forward(self, tokens):
        present = tokens != 0
        mask = present[:, None, None, :]
        x = self.word(tokens) + self.position
        for layer in self.layers:
            x = layer(x, mask)
        weights = present.unsqueeze(-1).float()
        pooled = (self.norm(x) * weights).sum(1) / weights.sum(1)
        return self.head(pooled)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total_loss, count = 0.0, 0
    confusion = np.zeros((len(DEPARTMENTS), len(DEPARTMENTS)), dtype=int)
    for tokens, labels in loader:
        logits = model(tokens)
        total_loss += F.cross_entropy(logits, labels, reduction="sum").item()
        count += len(labels)
        np.add.at(confusion, (labels.numpy(), logits.argmax(1).numpy()), 1)
    model.train()
    hits = np.diag(confusion)
    f1 = 2 * hits / np.maximum(confusion.sum(0) + confusion.sum(1), 1)
    return total_loss / count, hits.sum() / count, f1.mean()


def main():
    start = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    train_tickets = write_tickets(cfg.tickets, rng)
    val_tickets = write_tickets(cfg.val_tickets, rng)
    vocab = build_vocab(train_tickets, cfg.vocab_size)
    train_set = encode(train_tickets, vocab, cfg.max_len)
    val_set = encode(val_tickets, vocab, cfg.max_len)
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=1, shuffle=False)

    model = TicketRouter(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    best_f1, best_state = -1.0, None

    losses, ends = [], []
    for epoch in range(cfg.epochs):
        for tokens, labels in train_loader:
            loss = F.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            ends.append(time.perf_counter())
            if len(losses) % cfg.log_every == 0:
                print(f"epoch {epoch} step {len(losses)} loss {np.mean(losses[-cfg.log_every:]):.4f}")
        val_loss, accuracy, f1 = validate(model, val_loader)
        print(f"epoch {epoch} val loss {val_loss:.4f} accuracy {accuracy:.3f} macro f1 {f1:.3f}")
        if f1 > best_f1:
            best_f1, best_state = f1, copy.deepcopy(model.state_dict())

    with tempfile.TemporaryDirectory(prefix="tickets_") as folder:
        torch.save({"model": best_state, "vocab": vocab}, os.path.join(folder, "router.pt"))
    print(f"best macro f1 {best_f1:.3f}")
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(ends))),
                                  "fit_s": time.perf_counter() - start,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
