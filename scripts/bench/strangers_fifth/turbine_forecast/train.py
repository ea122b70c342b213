"""Short-term power forecast of a wind farm from its SCADA history (MLP-Mixer on windows)."""
import argparse
import json
import os
import tempfile
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turbines", type=int, default=24)
    parser.add_argument("--hours", type=int, default=6000)
    parser.add_argument("--window", type=int, default=96)
    parser.add_argument("--horizon", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=11)
    return parser.parse_args()


def simulate_farm(args):
    rng = np.random.default_rng(args.seed)
    t = np.arange(args.hours)
    weather = np.cumsum(rng.normal(0, 0.35, args.hours))
    weather = weather - pd.Series(weather).rolling(500, min_periods=1).mean().to_numpy()
    columns = {}
    for k in range(args.turbines):
        lag = k % 6
        speed = 8 + np.roll(weather, lag) + np.sin(2 * np.pi * t / 24 + k) + rng.normal(0, 0.3, args.hours)
        columns[f"wtg_{k:02d}"] = np.clip(speed / 12, 0, 1) ** 3
    index = pd.date_range("2021-01-01", periods=args.hours, freq="h")
    return pd.DataFrame(columns, index=index)


class Windows(Dataset):
    def __init__(self, values, window, horizon):
        self.values = torch.from_numpy(values)
        self.window, self.horizon = window, horizon

    def __len__(self):
        return len(self.values) - self.window - self.horizon + 1

    def __getitem__(self, i):
        mid = i + self.window
        return self.values[i:mid], self.values[mid:mid + self.horizon]


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.time = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.feat = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.time(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.feat(self.n2(x))


class FarmMixer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.inp = nn.Linear(args.turbines, args.hidden)
        self.blocks = nn.Sequential(*[MixerBlock(args.window, args.hidden) for _ in range(args.depth)])
        self.out_time = nn.Linear(args.window, args.horizon)
        self.out_feat = nn.Linear(args.hidden, args.turbines)

    def forward(self, x):
        h = self.blocks(self.inp(x))
        h = self.out_time(h.transpose(1, 2)).transpose(1, 2)
        return self.out_feat(h) + x[:, -1:]


@torch.no_grad()
def validate(model, loader):
    model.eval()
    err = [(model(x) - y).abs().mean().item() for x, y in loader]
    model.train()
    return float(np.mean(err))


def main():
    t0 = time.perf_counter()
    args = get_args()
    torch.manual_seed(args.seed)
    frame = simulate_farm(args)
    cut = int(len(frame) * 0.85)
    mean, std = frame.iloc[:cut].mean(), frame.iloc[:cut].std()
    values = ((frame - mean) / std).to_numpy(copy=True)
    train_set = Windows(values[:cut], args.window, args.horizon)
    val_set = Windows(values[cut:], args.window, args.horizon)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, 128)

    model = FarmMixer(args).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    criterion = nn.SmoothL1Loss()
    ckpt = os.path.join(tempfile.mkdtemp(prefix="farm_"), "best.pt")
    best, losses, times = float("inf"), [], []
    for epoch in range(args.epochs):
        tick = time.perf_counter()
        for it, (x, y) in enumerate(train_loader):
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            tock = time.perf_counter()
            times.append(tock - tick)
            tick = tock
            if it % 50 == 0:
                print(f"[{epoch}:{it:3d}/{len(train_loader)}] loss {losses[-1]:.4f}", flush=True)
        mae = validate(model, val_loader)
        print(f"epoch {epoch} val MAE {mae:.4f}")
        if mae < best:
            best = mae
            torch.save({"model": model.state_dict(), "epoch": epoch}, ckpt)
    print("RESULT " + json.dumps({
        "step_s": float(np.median(times)),
        "fit_s": time.perf_counter() - t0,
        "loss": float(np.mean(losses[-10:])),
    }))


if __name__ == "__main__":
    main()
