"""Metric learning for product matching: offers of the same product should lie close together."""
import json
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass
class Config:
    products: int = 400
    offers: int = 8
    title_len: int = 24
    vocab: int = 3000
    dim: int = 128
    products_per_batch: int = 10
    offers_per_product: int = 3
    margin: float = 1.0
    lr: float = 1e-3
    steps: int = 200
    seed: int = 3


class OfferDataset(Dataset):
    def __init__(self, cfg, split):
        rng = np.random.default_rng(cfg.seed if split == "train" else cfg.seed + 1)
        base = rng.integers(1, cfg.vocab, (cfg.products, cfg.title_len))
        titles = np.repeat(base, cfg.offers, axis=0)
        noise = rng.random(titles.shape) < 0.4
        titles[noise] = rng.integers(1, cfg.vocab, int(noise.sum()))
        self.titles = torch.from_numpy(titles)
        self.labels = torch.arange(cfg.products).repeat_interleave(cfg.offers)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.titles[i], self.labels[i]


class PKSampler(Sampler):
    """P products with K offers each."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.rng = np.random.default_rng(cfg.seed)

    def __len__(self):
        return self.cfg.steps

    def __iter__(self):
        c = self.cfg
        for _ in range(c.steps):
            chosen = self.rng.choice(c.products, c.products_per_batch, replace=False)
            yield [int(p * c.offers + o) for p in chosen
                   for o in self.rng.choice(c.offers, c.offers_per_product, replace=False)]


class TitleEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.convs = nn.ModuleList(nn.Conv1d(cfg.dim, 192, k, padding=k // 2) for k in (1, 3, 5))
        self.proj = nn.Sequential(nn.Linear(3 * 192, 512), nn.ReLU(), nn.Linear(512, 64))

    def forward(self, tokens):
        x = self.emb(tokens).transpose(1, 2)
        pooled = [F.relu(conv(x)).amax(-1) for conv in self.convs]
        return F.normalize(self.proj(torch.cat(pooled, 1)), dim=1)


class ContrastiveLoss(nn.Module):
    """Hadsell et al. 2006, over all pairs of the batch."""

    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, z, labels):
        loss = z.new_zeros(())
        pairs = 0
        for i in range(len(z)):
            for j in range(i + 1, len(z)):
                d2 = (z[i] - z[j]).pow(2).sum()
                if labels[i] == labels[j]:
                    loss = loss + d2
                else:
                    loss = loss + F.relu(self.margin - torch.sqrt(d2 + 1e-9)).pow(2)
                pairs += 1
        return loss / pairs


@torch.no_grad()
def recall_at_1(model, data, n=800):
    model.eval()
    z = torch.cat([model(t) for t in data.titles[:n].split(200)])
    sim = z @ z.T
    sim.fill_diagonal_(-2)
    hit = data.labels[:n][sim.argmax(1)] == data.labels[:n]
    model.train()
    return hit.float().mean().item()


def main():
    begin = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train, valid = OfferDataset(cfg, "train"), OfferDataset(cfg, "valid")
    loader = DataLoader(train, batch_sampler=PKSampler(cfg))
    model = TitleEncoder(cfg)
    criterion = ContrastiveLoss(cfg.margin)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    out = tempfile.mkdtemp(prefix="matching_")

    losses, times = [], []
    t = time.perf_counter()
    for step, (tokens, labels) in enumerate(loader, 1):
        z = model(tokens)
        loss = criterion(z, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - t)
        if step % 50 == 0:
            r1 = recall_at_1(model, valid)
            print(f"step {step}: loss {np.mean(losses[-50:]):.4f} recall@1 {r1:.3f}", flush=True)
            torch.save(model.state_dict(), os.path.join(out, "last.pt"))
        t = time.perf_counter()
    print("RESULT " + json.dumps({"step_s": float(np.median(times)),
                                  "fit_s": time.perf_counter() - begin,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
