"""Data-parallel training of a cell phenotype classifier with gradient accumulation.

``python train.py`` starts two ranks on this machine through torchrun.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=2)
    p.add_argument("--cells", type=int, default=4096)
    p.add_argument("--size", type=int, default=40)
    p.add_argument("--classes", type=int, default=6)
    p.add_argument("--micro-batch", type=int, default=8)
    p.add_argument("--accumulate", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=79)
    return p.parse_args()


def launch(args):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               f"--nproc_per_node={args.nproc}", os.path.abspath(__file__), *sys.argv[1:]]
    sys.exit(subprocess.run(command).returncode)


def make_cells(args):
    g = torch.Generator().manual_seed(args.seed)
    n, s = args.cells, args.size
    y = torch.randint(0, args.classes, (n,), generator=g)
    grid = torch.linspace(-1, 1, s)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    centre = (torch.rand(n, 2, 1, 1, generator=g) - 0.5) * 0.4
    r = ((xx - centre[:, 0]) ** 2 + (yy - centre[:, 1]) ** 2).sqrt()
    radius = 0.35 + 0.08 * (y % 3).view(-1, 1, 1)
    nucleus = torch.sigmoid((radius - r) * 20)
    granules = torch.sin(r * (8 + 5 * (y // 3).view(-1, 1, 1))) * torch.sigmoid((0.8 - r) * 20)
    x = torch.stack([nucleus, granules], 1)
    return x + 0.3 * torch.randn(x.shape, generator=g), y


class PhenotypeNet(nn.Module):
    def __init__(self, classes, size):
        super().__init__()
        side = size // 8
        self.convs = nn.Sequential(
            nn.Conv2d(2, 32, 3, 2, 1), nn.ReLU(), nn.GroupNorm(8, 32),
            nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.GroupNorm(8, 64),
            nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.GroupNorm(8, 128))
        self.fc = nn.Sequential(
            nn.Flatten(), nn.Linear(128 * side * side, 1536), nn.ReLU(),
            nn.Linear(1536, 512), nn.ReLU(), nn.Linear(512, classes))

    def forward(self, x):
        return self.fc(self.convs(x))


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    hits = sum((model(a).argmax(1) == b).sum().item() for a, b in zip(x.split(128), y.split(128)))
    model.train()
    total = torch.tensor([hits, len(y)], dtype=torch.float64)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def train(args):
    t_main = time.perf_counter()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    x, y = make_cells(args)
    n_val = args.cells // 10
    train_set = TensorDataset(x[n_val:], y[n_val:])
    sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(train_set, args.micro_batch, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(PhenotypeNet(args.classes, args.size))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * 40, momentum=0.9)
    updates = len(loader) // args.accumulate
    if rank == 0:
        size = sum(p.numel() for p in model.parameters()) / 1e6
        print(f"{world} ranks, {size:.1f}M parameters, {updates} updates per epoch", flush=True)

    losses, times = [], []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        for update in range(updates):
            t = time.perf_counter()
            total = 0.0
            for micro in range(args.accumulate):
                images, labels = next(batches)
                loss = F.cross_entropy(model(images), labels) / args.accumulate
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(total)
            times.append(time.perf_counter() - t)
            if rank == 0 and update % 20 == 0:
                print(f"epoch {epoch} update {update} loss {total:.4f}", flush=True)
        acc = evaluate(model.module, x[rank:n_val:world], y[rank:n_val:world])
        if rank == 0:
            print(f"epoch {epoch} val acc {acc:.3f}", flush=True)
            torch.save(model.module.state_dict(), os.path.join(tempfile.gettempdir(), f"cells_{os.getpid()}.pt"))
    fit_s = time.perf_counter() - t_main
    last = torch.tensor(losses[-10:]).mean()
    dist.all_reduce(last)
    if rank == 0:
        print("RESULT " + json.dumps({"step_s": float(np.median(times)), "fit_s": fit_s,
                                      "loss": float(last / world)}), flush=True)
    dist.destroy_process_group()


def main():
    args = parse_args()
    if "RANK" not in os.environ:
        launch(args)
    train(args)


if __name__ == "__main__":
    main()
