"""Day ahead load of distribution feeders with residual dense blocks (N-BEATS), data parallel over two processes."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Config:
    feeders: int = 64
    hours: int = 24 * 365
    test_hours: int = 24 * 42
    history: int = 168
    horizon: int = 24
    blocks: int = 3
    hidden: int = 256
    batch_size: int = 512
    steps_per_epoch: int = 80
    epochs: int = 3
    lr: float = 1e-3
    weight_decay: float = 1e-4
    log_every: int = 20
    seed: int = 31


def simulate_load(cfg):
    """Hourly load: daily and weekly shape, temperature and autoregressive noise, scaled per feeder."""
    rng = np.random.default_rng(cfg.seed)
    hour = np.arange(cfg.hours)
    phase = rng.uniform(-2, 2, (cfg.feeders, 1))
    daily = np.sin(2 * np.pi * (hour + phase) / 24) + 0.4 * np.sin(4 * np.pi * (hour + phase) / 24)
    weekly = np.where((hour // 24) % 7 >= 5, -0.5, 0.0) * rng.uniform(0.3, 1.3, (cfg.feeders, 1))
    season = np.cos(2 * np.pi * hour / cfg.hours) * rng.uniform(0.2, 1.0, (cfg.feeders, 1))
    shocks = rng.normal(0, 0.15, (cfg.hours, cfg.feeders))
    noise = np.zeros_like(shocks)
    for t in range(1, cfg.hours):
        noise[t] = 0.9 * noise[t - 1] + shocks[t]
    load = daily + weekly + season + noise.T
    load = (load - load.mean(1, keepdims=True)) / load.std(1, keepdims=True)
    return torch.from_numpy(load.astype(np.float32))


class WindowSampler:
    """Random windows over all feeders; every rank draws from a stream of its own."""

    def __init__(self, load, cfg, seed):
        self.windows = load.unfold(1, cfg.history + cfg.horizon, 1)
        self.history, self.batch_size = cfg.history, cfg.batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self):
        feeders, starts = self.windows.shape[:2]
        feeder = torch.randint(feeders, (self.batch_size,), generator=self.generator)
        start = torch.randint(starts, (self.batch_size,), generator=self.generator)
        chosen = self.windows[feeder, start]
        return chosen[:, :self.history], chosen[:, self.history:]


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(cfg.history, cfg.hidden), nn.ReLU(inplace=True),
            nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU(inplace=True),
            nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU(inplace=True))
        self.heads = nn.Linear(cfg.hidden, cfg.history + cfg.horizon)
        self.sizes = (cfg.history, cfg.horizon)

    def forward(self, x):
        return self.heads(self.trunk(x)).split(self.sizes, dim=1)


class NBeats(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.blocks - 1))
        self.last = nn.Sequential(
            nn.Linear(cfg.history, cfg.hidden), nn.ReLU(inplace=True),
            nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU(inplace=True),
            nn.Linear(cfg.hidden, cfg.horizon))

    def forward(self, history):
        residual, forecast = history, 0.0
        for block in self.blocks:
            backcast, part = block(residual)
            residual, forecast = residual - backcast, forecast + part
        return forecast + self.last(residual)


@torch.inference_mode()
def evaluate(model, load, cfg, rank, world):
    """Mean absolute error of the forecasts issued at midnight; feeders are split over the ranks."""
    model.eval()
    windows = load[rank::world].unfold(1, cfg.history + cfg.horizon, 24).flatten(0, 1)
    error = F.l1_loss(model(windows[:, :cfg.history]), windows[:, cfg.history:], reduction="sum")
    tally = torch.stack([error, torch.tensor(float(len(windows) * cfg.horizon))])
    dist.all_reduce(tally)
    model.train()
    return (tally[0] / tally[1]).item()


def main():
    begin = time.perf_counter()
    cfg = Config()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed)
    load = simulate_load(cfg)
    train_load, test_load = load[:, :-cfg.test_hours], load[:, -cfg.test_hours - cfg.history:]
    sampler = WindowSampler(train_load, cfg, cfg.seed + 1 + rank)

    net = NBeats(cfg)
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.epochs * cfg.steps_per_epoch)

    losses, durations, step = [], [], 0
    mark = time.perf_counter()
    for epoch in range(cfg.epochs):
        for _ in range(cfg.steps_per_epoch):
            history, future = sampler.draw()
            loss = F.smooth_l1_loss(model(history), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            step += 1
            if rank == 0 and step % cfg.log_every == 0:
                print(f"epoch {epoch} step {step} loss {statistics.fmean(losses[-cfg.log_every:]):.4f}", flush=True)
            now = time.perf_counter()
            durations.append(now - mark)
            mark = now
        error = evaluate(net, test_load, cfg, rank, world)
        if rank == 0:
            print(f"epoch {epoch} test mae {error:.4f}", flush=True)
    if rank == 0:
        with tempfile.TemporaryDirectory(prefix="feeders_") as tmp:
            torch.save(net.state_dict(), Path(tmp) / "nbeats.pt")
        print("RESULT " + json.dumps({
            "step_s": round(statistics.median(durations), 5),
            "fit_s": round(time.perf_counter() - begin, 2),
            "loss": round(statistics.fmean(losses[-10:]), 5),
        }), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "LOCAL_RANK" not in os.environ:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", __file__]
        sys.exit(subprocess.call(launch))
    main()
