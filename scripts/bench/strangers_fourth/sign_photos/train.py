#!/usr/bin/env python
"""Classify photographs of road signs with a small residual network.

Expects a folder of classes, each a folder of .jpg. Without --root a folder is drawn first.
"""
import argparse
import json
import math
import random
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

CLASSES = ["circle", "triangle", "square", "diamond", "octagon", "bar"]
SIDES = {"circle": 60, "triangle": 3, "square": 4, "diamond": 4, "octagon": 8, "bar": 2}


def draw_folder(root, per_class, size, seed):
    rng = np.random.default_rng(seed)
    for name in CLASSES:
        (root / name).mkdir(parents=True)
        for k in range(per_class):
            coarse = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
            photo = Image.fromarray(coarse).resize((size, size), Image.BICUBIC)
            cx, cy = rng.uniform(0.35, 0.65, 2) * size
            radius = rng.uniform(0.15, 0.3) * size
            turn = (math.pi / 4 if name == "square" else 0) + rng.normal() * 0.08
            sides = SIDES[name]
            points = [
                (cx + radius * math.sin(turn + 2 * math.pi * j / sides),
                 cy + radius * math.cos(turn + 2 * math.pi * j / sides))
                for j in range(sides)
            ]
            pen = ImageDraw.Draw(photo)
            color = tuple(int(c) for c in rng.integers(0, 255, 3))
            if sides == 2:
                pen.line(points, fill=color, width=size // 12)
            else:
                pen.polygon(points, fill=color, outline=(255, 255, 255))
            photo.save(root / name / f"{k:04d}.jpg", quality=92)


class SignFolder(Dataset):
    """Images of a folder per class, as float tensors of a common size."""

    def __init__(self, root, size, flip=True):
        self.size, self.flip = size, flip
        self.files = [(p, c) for c, name in enumerate(CLASSES) for p in sorted((root / name).glob("*.jpg"))]

    def __len__(self):
        return len(self.files)

    def load(self, path):
        image = Image.open(path).convert("RGB")
        image = image.resize((self.size, self.size), Image.LANCZOS)
        return np.asarray(image)

    def __getitem__(self, i):
        path, label = self.files[i]
        pixels = torch.from_numpy(self.load(path).copy()).permute(2, 0, 1).float().div_(255)
        if self.flip and random.random() < 0.5:
            pixels = pixels.flip(-1)
        return (pixels - 0.5) / 0.25, label


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(y)) + self.skip(x))


def build():
    return nn.Sequential(
        nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU(),
        Block(24, 32, 1), Block(32, 64, 2), Block(64, 96, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, len(CLASSES)),
    )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", type=Path, default=None)
    ap.add_argument("--per-class", type=int, default=40)
    ap.add_argument("--photo-size", type=int, default=900)
    ap.add_argument("--size", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--bs", type=int, default=24)
    ap.add_argument("--lr", type=float, default=0.03)
    ap.add_argument("--seed", type=int, default=5)
    a = ap.parse_args()

    random.seed(a.seed)
    torch.manual_seed(a.seed)
    made = None
    if a.root is None:
        made = Path(tempfile.mkdtemp(prefix="signs_"))
        draw_folder(made, a.per_class, a.photo_size, a.seed)
    start = time.time()
    data = SignFolder(a.root or made, a.size)
    loader = DataLoader(data, batch_size=a.bs, shuffle=True, drop_last=True)
    net = build()
    opt = torch.optim.SGD(net.parameters(), lr=a.lr, momentum=0.9, nesterov=True)
    stamps, losses = [], []
    for epoch in range(a.epochs):
        right = seen = 0
        for x, y in loader:
            out = net(x)
            loss = F.cross_entropy(out, y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (out.argmax(1) == y).sum().item()
            seen += len(y)
            losses.append(loss.item())
            stamps.append(time.time())
        print(f"[{epoch + 1}/{a.epochs}] loss {losses[-1]:.4f} train acc {right / seen:.3f}", flush=True)
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[2]) / (len(stamps) - 3),
        "fit_s": time.time() - start,
        "loss": float(np.mean(losses[-5:])),
    }), flush=True)
    if made is not None:
        shutil.rmtree(made)
