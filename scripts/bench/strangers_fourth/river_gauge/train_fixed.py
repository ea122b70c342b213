# Water level forecast at a gauge (24 h ahead) from upstream gauges and rain.
# usage: python train.py --hours 9000 --horizon 24
import argparse
import json
import time

import numpy as np
import torch
from torch import nn


def catchment(hours, channels, seed):
    """Rain, soil moisture, and levels of the upstream gauges, hourly."""
    rng = np.random.default_rng(seed)
    rain = np.maximum(rng.gamma(0.08, 6.0, hours) - 0.3, 0)
    levels = np.zeros((hours, channels), dtype=np.float32)
    store = np.zeros(channels - 1)
    speed = np.linspace(0.15, 0.012, channels - 1)
    for h in range(hours):
        store = store * (1 - speed) + rain[h] * speed
        levels[h, 0] = rain[h]
        levels[h, 1:] = store
    levels[:, 1:] += 0.02 * rng.standard_normal((hours, channels - 1))
    return torch.from_numpy((levels - levels.mean(0)) / levels.std(0))


def make_windows(series, past, horizon):
    starts = range(past, len(series) - horizon)
    x = torch.stack([series[t - past : t] for t in starts])
    y = torch.stack([series[t : t + horizon, -1] for t in starts])
    return x, y


class Forecaster(nn.Module):
    def __init__(self, channels, horizon, hidden):
        super().__init__()
        self.mix = nn.Linear(channels, hidden)
        self.encoder = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, horizon))

    def forward(self, x):
        _, state = self.encoder(torch.relu(self.mix(x)))
        return self.head(state[-1])


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--hours", type=int, default=7000)
    ap.add_argument("--past", type=int, default=72)
    ap.add_argument("--horizon", type=int, default=24)
    ap.add_argument("--channels", type=int, default=8)
    ap.add_argument("--hidden", type=int, default=96)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()

    t0 = time.perf_counter()
    torch.manual_seed(args.seed)
    series = catchment(args.hours, args.channels, args.seed)
    split = int(len(series) * 0.9)
    x, y = make_windows(series[:split], args.past, args.horizon)
    x_val, y_val = make_windows(series[split:], args.past, args.horizon)
    print(f"{len(x)} windows for training, {len(x_val)} held out", flush=True)

    net = Forecaster(args.channels, args.horizon, args.hidden)
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, fused=True)
    steps_per_epoch = len(x) // args.batch
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * steps_per_epoch)
    losses, ticks = [], []
    for epoch in range(args.epochs):
        order = torch.randperm(len(x))
        for b in range(steps_per_epoch):
            pick = order[b * args.batch : (b + 1) * args.batch]
            loss = nn.functional.mse_loss(net(x[pick]), y[pick])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
            ticks.append(time.perf_counter())
            if b % 25 == 0:
                print(f"{epoch}:{b} mse {loss.item():.4f}", flush=True)
        with torch.no_grad():
            val = nn.functional.mse_loss(net(x_val), y_val).item()
        print(f"epoch {epoch} val mse {val:.4f}", flush=True)

    print("RESULT " + json.dumps({
        "step_s": (ticks[-1] - ticks[4]) / (len(ticks) - 5),
        "fit_s": time.perf_counter() - t0,
        "loss": sum(losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    run()
