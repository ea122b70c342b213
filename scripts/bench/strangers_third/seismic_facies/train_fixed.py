"""Facies segmentation of seismic sections with a small encoder-decoder."""
import argparse
import json
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FACIES = 6


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--patches", type=int, default=512)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def set_reproducible(seed):
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def synthetic_sections(n, size):
    """Dipping layers, each facies with a reflectivity of its own, convolved with a wavelet."""
    depth = torch.arange(size).view(1, size, 1)
    dip = torch.empty(n, 1, 1).uniform_(-0.5, 0.5) * torch.arange(size).view(1, 1, size)
    wobble = 4 * torch.sin(torch.arange(size) / 9.0 + 6 * torch.rand(n, 1)).unsqueeze(1)
    label = (((depth + dip + wobble) / 10).floor().long() % FACIES)
    reflect = torch.linspace(-1, 1, FACIES)[label] + 0.15 * torch.randn(n, size, size)
    wavelet = torch.tensor([-0.3, 0.2, 1.0, 0.2, -0.3]).view(1, 1, 5, 1)
    trace = F.conv2d(reflect.unsqueeze(1), wavelet, padding=(2, 0))
    return trace, label


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class FaciesNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1 = block(1, width)
        self.down2 = block(width, 2 * width)
        self.mid = block(2 * width, 4 * width)
        self.up2 = block(6 * width, 2 * width)
        self.up1 = block(3 * width, width)
        self.head = nn.Conv2d(width, FACIES, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.up1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.head(a)


def main():
    args = get_args()
    set_reproducible(args.seed)
    sections, labels = synthetic_sections(args.patches, args.size)
    model = FaciesNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    stamps, losses = [], []
    start = time.perf_counter()
    for step in range(args.steps):
        pick = torch.randint(args.patches, (args.batch,))
        x = sections[pick].to(memory_format=torch.channels_last)
        loss = F.cross_entropy(model(x), labels[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        stamps.append(time.perf_counter())
        if step % 25 == 0:
            print(f"step {step} loss {losses[-1]:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
