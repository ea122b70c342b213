"""Route customer support tickets to the right team with a small transformer encoder."""
import json
import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PAD, UNK = "<pad>", "<unk>"


@dataclass
class Config:
    n_tickets: int = 3000
    n_words: int = 9000
    n_teams: int = 8
    max_len: int = 40
    min_count: int = 2
    dim: int = 96
    heads: int = 4
    layers: int = 2
    batch_size: int = 32
    epochs: int = 2
    lr: float = 5e-4
    val_fraction: float = 0.15
    log_every: int = 40
    seed: int = 5


def write_tickets(path, cfg):
    rng = np.random.default_rng(cfg.seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(rng.choice(letters, rng.integers(4, 10))) for _ in range(cfg.n_words)])
    base = 1.0 / (np.arange(cfg.n_words) + 50.0)
    topics = [rng.choice(cfg.n_words, 120, replace=False) for _ in range(cfg.n_teams)]
    rows = []
    for i in range(cfg.n_tickets):
        team = int(rng.integers(cfg.n_teams))
        n = int(rng.integers(20, 48))
        ids = rng.choice(cfg.n_words, n, p=base / base.sum())
        swap = rng.random(n) < 0.15
        ids[swap] = rng.choice(topics[team], swap.sum())
        rows.append((i, f"Team-{team}", " ".join(words[ids]).capitalize() + "."))
    pd.DataFrame(rows, columns=["ticket", "team", "text"]).to_csv(path, index=False)


def tokenize(text):
    return text.lower().replace(".", " ").replace(",", " ").split()


def build_vocabulary(texts, min_count):
    counts = Counter(token for text in texts for token in tokenize(text))
    return [PAD, UNK] + sorted(token for token, n in counts.items() if n >= min_count)


def encode(text, vocab, max_len):
    ids = [vocab.index(token) if token in vocab else 1 for token in tokenize(text)[:max_len]]
    return ids + [0] * (max_len - len(ids))


def prepare(path, cfg):
    df = pd.read_csv(path)
    vocab = build_vocabulary(df["text"], cfg.min_count)
    inputs = torch.tensor([encode(text, vocab, cfg.max_len) for text in df["text"]])
    teams = sorted(df["team"].unique())
    labels = torch.tensor(df["team"].map({t: i for i, t in enumerate(teams)}).to_numpy())
    n_val = int(len(df) * cfg.val_fraction)
    train = TensorDataset(inputs[n_val:], labels[n_val:])
    val = TensorDataset(inputs[:n_val], labels[:n_val])
    return train, val, len(vocab)


class TicketRouter(nn.Module):
    def __init__(self, vocab_size, cfg):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, cfg.dim, padding_idx=0)
        self.positions = nn.Parameter(torch.randn(cfg.max_len, cfg.dim) * 0.02)
        layer = nn.TransformerEncoderLayer(cfg.dim, cfg.heads, 2 * cfg.dim, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.head = nn.Linear(cfg.dim, cfg.n_teams)

    def forward(self, ids):
        pad = ids == 0
        h = self.encoder(self.tokens(ids) + self.positions, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).float()
        return self.head((h * keep).sum(1) / keep.sum(1).clamp(min=1.0))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return correct / len(loader.dataset)


def main():
    t0 = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    with tempfile.TemporaryDirectory() as tmp:
        csv = os.path.join(tmp, "tickets.csv")
        write_tickets(csv, cfg)
        train_set, val_set, vocab_size = prepare(csv, cfg)
    print(f"{len(train_set)} training tickets, {len(val_set)} validation tickets, {vocab_size} tokens", flush=True)
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=128)

    model = TicketRouter(vocab_size, cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)

    losses, ends, step = [], [], 0
    for epoch in range(cfg.epochs):
        for ids, team in train_loader:
            loss = F.cross_entropy(model(ids), team)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
            ends.append(time.perf_counter())
            if step % cfg.log_every == 0:
                print(f"epoch {epoch} step {step} loss {np.mean(losses[-cfg.log_every:]):.4f}", flush=True)
        print(f"epoch {epoch} val accuracy {evaluate(model, val_loader):.3f}", flush=True)

    print("RESULT " + json.dumps({
        "step_s": float(np.median(np.diff(ends))),
        "fit_s": time.perf_counter() - t0,
        "loss": float(np.mean(losses[-10:])),
    }))


if __name__ == "__main__":
    main()
