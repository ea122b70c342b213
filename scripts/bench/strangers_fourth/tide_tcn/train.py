"""Tidal residuals (storm surge) with a dilated causal convolution network."""
import argparse
import json
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    days: int = 600
    window: int = 256
    width: int = 56
    layers: int = 6
    batch: int = 24
    epochs: int = 2
    lr: float = 2e-3
    seed: int = 0


def surge(days, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(days * 24 * 2) / 48.0
    constituents = [(1.932, 1.0), (2.0, 0.45), (1.003, 0.3), (0.93, 0.2)]
    tide = sum(a * torch.sin(2 * torch.pi * f * t) for f, a in constituents)
    noise = torch.randn(len(t), generator=g)
    kernel = torch.exp(-torch.arange(96) / 20.0)
    wind = nn.functional.conv1d(noise[None, None], kernel[None, None], padding=95)[0, 0, : len(t)]
    wind = wind / wind.std()
    level = tide + 0.5 * wind.tanh()
    stacked = torch.stack([tide, wind, level])
    return (stacked - stacked.mean(1, keepdim=True)) / stacked.std(1, keepdim=True)


class Windows(Dataset):
    """Windows cut from one tensor; a whole batch is gathered at once."""

    def __init__(self, series, window, stride=6):
        self.series, self.window = series, window
        self.starts = torch.arange(0, series.shape[1] - window - 1, stride)
        self.offsets = torch.arange(window)

    def __len__(self):
        return len(self.starts)

    def __getitems__(self, indices):
        at = self.starts[indices][:, None] + self.offsets
        return self.series[:, at].transpose(0, 1), self.series[2][at + 1]


class Causal(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.out = nn.Conv1d(width, width, 1)

    def forward(self, x):
        a, b = self.conv(nn.functional.pad(x, (self.pad, 0))).chunk(2, dim=1)
        return x + self.out(torch.tanh(a) * torch.sigmoid(b))


def build(cfg):
    blocks = [Causal(cfg.width, 2**i) for i in range(cfg.layers)]
    return nn.Sequential(nn.Conv1d(3, cfg.width, 1), *blocks, nn.ReLU(), nn.Conv1d(cfg.width, 1, 1))


def main(cfg):
    torch.manual_seed(cfg.seed)
    data = Windows(surge(cfg.days, cfg.seed), cfg.window)
    loader = DataLoader(data, cfg.batch, shuffle=True, drop_last=True, collate_fn=lambda pair: pair)
    model = build(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.epochs * len(loader))
    losses, stamps = [], []
    began = time.perf_counter()
    for epoch in range(cfg.epochs):
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.huber_loss(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.detach())
            stamps.append(time.perf_counter())
            if i % 50 == 0:
                print(f"epoch {epoch} step {i}: {torch.stack(losses[-50:]).mean():.5f}", flush=True)
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": time.perf_counter() - began,
        "loss": torch.stack(losses[-10:]).mean().item(),
    }), flush=True)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    for name, value in vars(Config()).items():
        cli.add_argument("--" + name, type=type(value), default=value)
    main(Config(**vars(cli.parse_args())))
