"""Removing moire patterns from scanned pages with a convolutional autoencoder."""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--pages", type=int, default=384)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--batch", type=int, default=20)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def scan_pages(n, size):
    coarse = torch.rand(n, 3, size // 8, size // 8)
    clean = F.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=False)
    axis = torch.arange(size).float()
    f, angle = 1.2 + 0.8 * torch.rand(n, 1, 1, 1), 3.1 * torch.rand(n, 1, 1, 1)
    wave = torch.sin(f * (axis.view(-1, 1) * angle.cos() + axis * angle.sin()))
    moire = (clean + 0.25 * wave).clamp(0, 1)
    return (t.contiguous(memory_format=torch.channels_last) for t in (moire, clean))


class Demoire(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2, padding=2), nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(inplace=True),
        )
        self.decode = nn.Sequential(
            nn.Conv2d(2 * width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.ReLU(inplace=True),
            nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2),
        )

    def forward(self, x):
        return x - self.decode(self.encode(x))


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    moire, clean = scan_pages(args.pages, args.size)
    model = Demoire().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps)

    stamps, losses = [], []
    start = time.perf_counter()
    for step in range(args.steps):
        pick = torch.randint(args.pages, (args.batch,))
        loss = F.l1_loss(model(moire[pick]), clean[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        stamps.append(time.perf_counter())
        if step % 30 == 0:
            print(f"step {step} l1 {losses[-1]:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
