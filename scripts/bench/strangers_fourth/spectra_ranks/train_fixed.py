"""Predict soil properties from infrared spectra, data parallel.

    torchrun --standalone --nproc_per_node 2 train.py
or  python train.py            (starts two processes by itself)
"""
import argparse
import json
import os
import socket
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

PROPERTIES = 9


def soil_library(n, bands, seed):
    g = torch.Generator().manual_seed(seed)
    content = torch.randn(n, PROPERTIES, generator=g)
    centres = torch.linspace(0.05, 0.95, 3 * PROPERTIES)
    axis = torch.linspace(0, 1, bands)
    peaks = torch.exp(-((axis - centres[:, None]) ** 2) / 1e-3).view(PROPERTIES, 3, bands)
    strength = torch.randn(PROPERTIES, 3, 1, generator=g)
    spectra = content @ (peaks * strength).sum(1) + 0.3 * torch.randn(n, bands, generator=g)
    return spectra, content + 0.3 * content.roll(1, dims=1) ** 2


class SpectraNet(nn.Module):
    def __init__(self, bands, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(bands, width), nn.GELU(),
            nn.Linear(width, width), nn.GELU(),
            nn.Linear(width, width // 4), nn.GELU(),
            nn.Linear(width // 4, PROPERTIES),
        )

    def forward(self, x):
        return self.layers(x)


def train(rank, world, args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dataset = TensorDataset(*soil_library(args.samples, args.bands, args.seed))
    sampler = DistributedSampler(dataset, world, rank, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(dataset, args.micro_batch, sampler=sampler, drop_last=True)
    model = DDP(SpectraNet(args.bands, args.width), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.MSELoss()

    losses, ends, micro = [], [], 0
    start = time.perf_counter()
    epoch = 0
    while len(ends) < args.steps:
        sampler.set_epoch(epoch)
        running = 0.0
        for x, y in loader:
            micro += 1
            with nullcontext() if micro % args.accumulate == 0 else model.no_sync():
                loss = criterion(model(x), y) / args.accumulate
                loss.backward()
            running += loss.item()
            if micro % args.accumulate:
                continue
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(running)
            ends.append(time.perf_counter())
            running = 0.0
            if rank == 0 and len(ends) % 10 == 0:
                print(f"epoch {epoch} step {len(ends)} mse {losses[-1]:.4f}", flush=True)
            if len(ends) == args.steps:
                break
        epoch += 1
    dist.barrier()
    if rank == 0:
        print("RESULT " + json.dumps({
            "step_s": (ends[-1] - ends[2]) / (len(ends) - 3),
            "fit_s": time.perf_counter() - start,
            "loss": sum(losses[-5:]) / 5,
        }), flush=True)


def worker(rank, world, args):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    try:
        train(rank, world, args)
    finally:
        dist.destroy_process_group()


def spawned(rank, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    worker(rank, args.ranks, args)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--bands", type=int, default=800)
    parser.add_argument("--width", type=int, default=1536)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=16)
    parser.add_argument("--steps", type=int, default=36)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    if "RANK" in os.environ:
        worker(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), args)
    else:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        mp.spawn(spawned, (port, args), nprocs=args.ranks)


if __name__ == "__main__":
    main()
