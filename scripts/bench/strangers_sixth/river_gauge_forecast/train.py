"""Forecast the water level of river gauges 24 h ahead from the last seven days of hourly readings."""
import json
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    n_gauges: int = 40
    hours: int = 2400
    history: int = 168
    horizon: int = 24
    hidden: int = 96
    batch_size: int = 16
    lr: float = 1e-3
    epochs: int = 2
    windows_per_gauge: int = 45
    val_fraction: float = 0.1
    log_every: int = 50
    seed: int = 7


FEATURES = ["level", "rain", "temperature"]


def write_readings(path, cfg):
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.hours)
    frames = []
    for g in range(cfg.n_gauges):
        rain = rng.gamma(0.3, 2.0, cfg.hours)
        response = np.convolve(rain, np.exp(-np.arange(72) / 24.0), mode="full")[: cfg.hours]
        level = 1.5 + 0.05 * response + 0.2 * np.sin(2 * np.pi * (t + 7 * g) / 720)
        temp = 12 + 6 * np.sin(2 * np.pi * t / 24) + rng.normal(0, 1, cfg.hours)
        frames.append(pd.DataFrame({
            "gauge": f"DE-{g:04d}",
            "hour": t,
            "level": level + rng.normal(0, 0.02, cfg.hours),
            "rain": rain,
            "temperature": temp,
        }))
    pd.concat(frames, ignore_index=True).to_csv(path, index=False)


class GaugeWindows(Dataset):
    def __init__(self, readings, samples, cfg):
        self.readings = readings
        self.samples = samples
        self.history = cfg.history
        self.horizon = cfg.horizon

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        gauge, start = self.samples[i]
        series = self.readings[self.readings["gauge"] == gauge]
        window = series.iloc[start:start + self.history + self.horizon]
        values = window[FEATURES].to_numpy(dtype=np.float32)
        past = torch.from_numpy(values[: self.history])
        future = torch.from_numpy(values[self.history:, 0].copy())
        return past, future


class LevelForecaster(nn.Module):
    def __init__(self, n_features, hidden, horizon):
        super().__init__()
        self.conv = nn.Conv1d(n_features, hidden, kernel_size=7, stride=3, padding=3)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, horizon))

    def forward(self, x):
        h = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        out, _ = self.gru(h)
        return x[:, -1, :1] * 0.5 + self.head(out[:, -1])


def load_readings(path):
    df = pd.read_csv(path)
    df = df.sort_values(["gauge", "hour"]).reset_index(drop=True)
    df[FEATURES] = (df[FEATURES] - df[FEATURES].mean()) / df[FEATURES].std()
    return df


def draw_samples(df, cfg):
    rng = np.random.default_rng(cfg.seed + 1)
    last = cfg.hours - cfg.history - cfg.horizon
    samples = [(g, int(s)) for g in df["gauge"].unique() for s in rng.integers(0, last, cfg.windows_per_gauge)]
    rng.shuffle(samples)
    samples = [(str(g), int(s)) for g, s in samples]
    n_val = int(len(samples) * cfg.val_fraction)
    return samples[n_val:], samples[:n_val]


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, count = 0.0, 0
    for past, future in loader:
        total += (model(past) - future).abs().sum().item()
        count += future.numel()
    model.train()
    return total / count


def main():
    t0 = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    with tempfile.TemporaryDirectory() as tmp:
        csv = os.path.join(tmp, "readings.csv")
        write_readings(csv, cfg)
        df = load_readings(csv)
    train_samples, val_samples = draw_samples(df, cfg)
    train_loader = DataLoader(GaugeWindows(df, train_samples, cfg), batch_size=cfg.batch_size, shuffle=True,
                              drop_last=True)
    val_loader = DataLoader(GaugeWindows(df, val_samples, cfg), batch_size=128)

    model = LevelForecaster(len(FEATURES), cfg.hidden, cfg.horizon)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    loss_fn = nn.SmoothL1Loss()

    losses, ends, step = [], [], 0
    for epoch in range(cfg.epochs):
        for past, future in train_loader:
            optimizer.zero_grad()
            loss = loss_fn(model(past), future)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            step += 1
            ends.append(time.perf_counter())
            if step % cfg.log_every == 0:
                print(f"epoch {epoch} step {step} loss {np.mean(losses[-cfg.log_every:]):.4f}", flush=True)
        print(f"epoch {epoch} val MAE {evaluate(model, val_loader):.4f}", flush=True)

    print("RESULT " + json.dumps({
        "step_s": float(np.median(np.diff(ends))),
        "fit_s": time.perf_counter() - t0,
        "loss": float(np.mean(losses[-10:])),
    }))


if __name__ == "__main__":
    main()
