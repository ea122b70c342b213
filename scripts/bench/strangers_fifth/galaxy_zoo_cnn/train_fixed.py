"""Galaxy morphology classification with a small ResNet-style CNN.

The survey cut-outs are stored as compressed shards (``shard_000.npz`` ...), each with
``images`` (N, H, W, 3) uint8 and ``labels`` (N,) int64.
"""
import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = ("smooth", "disk", "spiral", "merger")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--size", type=int, default=48)
    p.add_argument("--shards", type=int, default=22)
    p.add_argument("--per-shard", type=int, default=64)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def draw_galaxy(rng, label, size):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / size - 0.5
    angle = rng.uniform(0, np.pi)
    u = xx * np.cos(angle) + yy * np.sin(angle)
    v = -xx * np.sin(angle) + yy * np.cos(angle)
    q = 1.0 if label in (0, 2) else 0.35
    r = np.sqrt(u ** 2 + (v / q) ** 2) + 1e-3
    img = np.exp(-r * rng.uniform(6, 10))
    if label == 2:
        img *= 1 + 0.8 * np.cos(2 * np.arctan2(v, u) - 12 * r)
    if label == 3:
        img += np.exp(-8 * np.sqrt((u - 0.2) ** 2 + (v - 0.15) ** 2))
    img = img[..., None] * rng.uniform(0.7, 1.0, 3) + rng.normal(0, 0.04, (size, size, 3))
    return (np.clip(img, 0, 1) * 255).astype(np.uint8)


def make_survey(root, args):
    rng = np.random.default_rng(args.seed)
    for s in range(args.shards):
        labels = rng.integers(0, len(CLASSES), args.per_shard)
        images = np.stack([draw_galaxy(rng, l, args.size) for l in labels])
        np.savez_compressed(root / f"shard_{s:03d}.npz", images=images, labels=labels)


class GalaxyShards(Dataset):
    """Random access over a list of ``.npz`` shards."""

    def __init__(self, shards, augment=False):
        self.shards = list(shards)
        self.augment = augment
        self.index = []
        self.images = []
        for k, path in enumerate(self.shards):
            with np.load(path) as z:
                self.images.append(z["images"])
                self.index += [(k, j, int(y)) for j, y in enumerate(z["labels"])]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        k, j, label = self.index[i]
        image = self.images[k][j]
        x = torch.from_numpy(image).permute(2, 0, 1).float().div_(255)
        if self.augment:
            if random.random() < 0.5:
                x = x.flip(-1)
            x = torch.rot90(x, random.randrange(4), (1, 2))
        return x, label


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


class GalaxyNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(Block(3, 24, 1), Block(24, 48, 2), Block(48, 96, 2))
        self.head = nn.Linear(96, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = n = 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum().item()
        n += len(y)
    model.train()
    return hits / n


def main():
    t_start = time.perf_counter()
    args = parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    root = Path(tempfile.mkdtemp(prefix="galaxies_"))
    make_survey(root, args)
    shards = sorted(root.glob("shard_*.npz"))
    train_set = GalaxyShards(shards[:-2], augment=True)
    val_set = GalaxyShards(shards[-2:])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, 64)

    model = GalaxyNet(len(CLASSES))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, args.lr, total_steps=args.epochs * len(train_loader))
    losses, times, best = [], [], 0.0
    for epoch in range(args.epochs):
        t = time.perf_counter()
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
            now = time.perf_counter()
            times.append(now - t)
            t = now
        acc = evaluate(model, val_loader)
        if acc > best:
            best = acc
            torch.save(model.state_dict(), root / "best.pt")
        print(f"epoch {epoch} loss {np.mean(losses[-20:]):.4f} val acc {acc:.3f}", flush=True)
    fit_s = time.perf_counter() - t_start
    print("RESULT " + json.dumps({"step_s": float(np.median(times)), "fit_s": fit_s,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
