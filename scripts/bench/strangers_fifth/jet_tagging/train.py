"""Jet tagging with a permutation-invariant network (deep sets with attention pooling)."""
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    jets: int = 36_000
    constituents: int = 32
    features: int = 5
    dim: int = 160
    batch_size: int = 128
    epochs: int = 2
    lr: float = 1e-3
    log_every: int = 40
    seed: int = 31


def simulate(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    n, k = cfg.jets, cfg.constituents
    label = torch.randint(0, 2, (n,), generator=g)
    prongs = torch.randn(n, 2, 2, generator=g) * 0.4
    which = torch.randint(0, 2, (n, k), generator=g) * label[:, None]
    axes = torch.gather(prongs, 1, which.unsqueeze(-1).expand(-1, -1, 2))
    eta_phi = axes + 0.25 * torch.randn(n, k, 2, generator=g)
    pt = -torch.log(torch.rand(n, k, generator=g) + 1e-6)
    pt = pt / pt.sum(1, keepdim=True)
    charge = torch.randint(-1, 2, (n, k), generator=g).float()
    x = torch.cat([eta_phi - eta_phi.mean(1, keepdim=True), pt.log().unsqueeze(-1),
                   (pt * k).unsqueeze(-1), charge.unsqueeze(-1)], -1)
    return x, label.float()


class AttentionPool(nn.Module):
    def __init__(self, dim, queries=4, heads=4):
        super().__init__()
        self.heads = heads
        self.query = nn.Parameter(torch.randn(queries, dim) * 0.02)
        self.kv = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(queries * dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        k, v = self.kv(x).view(b, n, 2, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q = self.query.view(1, -1, self.heads, d // self.heads).transpose(1, 2).expand(b, -1, -1, -1)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(1))


class JetTagger(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.dim
        self.phi = nn.Sequential(
            nn.Linear(cfg.features, d), nn.GELU(), nn.Linear(d, d), nn.GELU(),
            nn.Linear(d, d), nn.LayerNorm(d))
        self.pool = AttentionPool(d)
        self.rho = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Dropout(0.1), nn.Linear(d, 1))

    def forward(self, x):
        return self.rho(self.pool(self.phi(x))).squeeze(-1)


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    hits = sum(((model(a) > 0) == (b > 0.5)).sum().item() for a, b in zip(x.split(1024), y.split(1024)))
    model.train()
    return hits / len(y)


def main():
    t_begin = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    x, y = simulate(cfg)
    n_val = cfg.jets // 10
    x_val, y_val, x, y = x[:n_val], y[:n_val], x[n_val:], y[n_val:]
    model = JetTagger(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    steps = cfg.epochs * (len(y) // cfg.batch_size)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr * 2, total_steps=steps)
    out = tempfile.mkdtemp(prefix="jets_")

    losses, times, best = [], [], 0.0
    for epoch in range(cfg.epochs):
        order = torch.randperm(len(y))
        t = time.perf_counter()
        for i in range(len(y) // cfg.batch_size):
            idx = order[i * cfg.batch_size:(i + 1) * cfg.batch_size]
            logits = model(x[idx])
            loss = F.binary_cross_entropy_with_logits(logits, y[idx])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
            now = time.perf_counter()
            times.append(now - t)
            t = now
            if i % cfg.log_every == 0:
                print(f"epoch {epoch} it {i} loss {torch.stack(losses[-cfg.log_every:]).mean():.4f}", flush=True)
        acc = evaluate(model, x_val, y_val)
        print(f"epoch {epoch} val acc {acc:.4f}")
        if acc > best:
            best = acc
            torch.save({"model": model.state_dict(), "config": asdict(cfg)}, os.path.join(out, "best.pt"))
    print("RESULT " + json.dumps({"step_s": float(np.median(times)),
                                  "fit_s": time.perf_counter() - t_begin,
                                  "loss": float(torch.stack(losses[-10:]).mean())}))


if __name__ == "__main__":
    main()
