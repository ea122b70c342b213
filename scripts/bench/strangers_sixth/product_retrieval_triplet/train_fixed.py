"""Metric learning for product retrieval: text features + attributes -> embedding."""
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Sampler, TensorDataset


@dataclass
class Config:
    n_products: int = 600
    views_per_product: int = 16
    feat_dim: int = 512
    hidden: int = 768
    embed_dim: int = 128
    products_per_batch: int = 16
    views_per_batch: int = 4
    steps: int = 240
    lr: float = 5e-4
    margin: float = 0.3
    eval_every: int = 120
    log_every: int = 40
    seed: int = 5


class ProductBatchSampler(Sampler):
    """Yields batches of P products with K views each."""

    def __init__(self, labels, cfg):
        self.cfg = cfg
        order = torch.argsort(labels, stable=True)
        self.by_product = order.view(labels.unique().numel(), -1)
        self.gen = torch.Generator().manual_seed(cfg.seed)

    def __len__(self):
        return self.cfg.steps

    def __iter__(self):
        n, v = self.by_product.shape
        for _ in range(self.cfg.steps):
            products = torch.randperm(n, generator=self.gen)[: self.cfg.products_per_batch]
            views = torch.rand(len(products), v, generator=self.gen).argsort(1)[:, : self.cfg.views_per_batch]
            yield self.by_product[products].gather(1, views).flatten().tolist()


def make_catalogue(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    prototypes = torch.randn(cfg.n_products, 48, generator=g)
    mix = torch.randn(48, cfg.feat_dim, generator=g) / 7
    labels = torch.arange(cfg.n_products).repeat_interleave(cfg.views_per_product)
    x = torch.tanh(prototypes[labels] @ mix) + 0.9 * torch.randn(len(labels), cfg.feat_dim, generator=g)
    held_out = torch.arange(len(labels)) % cfg.views_per_product >= cfg.views_per_product - 4
    return x[~held_out], labels[~held_out], x[held_out], labels[held_out]


class EmbeddingNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(cfg.feat_dim, cfg.hidden), nn.LayerNorm(cfg.hidden), nn.GELU(),
            nn.Linear(cfg.hidden, cfg.hidden), nn.LayerNorm(cfg.hidden), nn.GELU(),
            nn.Linear(cfg.hidden, cfg.embed_dim),
        )

    def forward(self, x):
        return F.normalize(self.trunk(x), dim=-1)


class BatchHardTripletLoss(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, emb, labels):
        dist = (2 - 2 * emb @ emb.T).clamp_min(1e-8).sqrt()
        same = labels.unsqueeze(1) == labels.unsqueeze(0)
        eye = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        hardest_pos = dist.masked_fill(~same | eye, float("-inf")).max(dim=1).values
        hardest_neg = dist.masked_fill(same, float("inf")).min(dim=1).values
        return F.softplus(hardest_pos - hardest_neg + self.margin).mean()


@torch.inference_mode()
def recall_at_1(model, gallery_x, gallery_y, query_x, query_y):
    model.eval()
    gallery = model(gallery_x)
    hits = 0
    for chunk, target in zip(query_x.split(512), query_y.split(512)):
        nearest = (model(chunk) @ gallery.T).argmax(1)
        hits += (gallery_y[nearest] == target).sum().item()
    model.train()
    return hits / len(query_y)


def main():
    t_start = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    print("config", asdict(cfg))
    train_x, train_y, val_x, val_y = make_catalogue(cfg)
    loader = DataLoader(TensorDataset(train_x, train_y), batch_sampler=ProductBatchSampler(train_y, cfg))

    model = EmbeddingNet(cfg)
    criterion = BatchHardTripletLoss(cfg.margin)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=cfg.steps)

    losses, step_times = [], []
    t_last = time.perf_counter()
    for step, (x, y) in enumerate(loader, 1):
        emb = model(x)
        loss = criterion(emb, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.item())
        now = time.perf_counter()
        step_times.append(now - t_last)

        if step % cfg.log_every == 0:
            print(f"step {step:4d}  triplet {sum(losses[-20:]) / len(losses[-20:]):.4f}  lr {sched.get_last_lr()[0]:.2e}")
        if step % cfg.eval_every == 0:
            r1 = recall_at_1(model, train_x, train_y, val_x, val_y)
            print(f"step {step:4d}  recall@1 {r1:.3f}")
        t_last = time.perf_counter()

    with tempfile.TemporaryDirectory() as out:
        torch.save({"model": model.state_dict(), "config": asdict(cfg)}, os.path.join(out, "embedder.pt"))

    print("RESULT " + json.dumps({
        "step_s": statistics.median(step_times),
        "fit_s": time.perf_counter() - t_start,
        "loss": sum(losses[-10:]) / 10,
    }))


if __name__ == "__main__":
    main()
