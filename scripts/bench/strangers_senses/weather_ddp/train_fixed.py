"""Six-hour weather emulator on a coarse sphere, spectral mixing by fixed transforms, two ranks (DDP over gloo)."""
import argparse
import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

LAT, LON, FIELDS = 32, 64, 6


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=2)
    ap.add_argument("--states", type=int, default=440)
    ap.add_argument("--modes", type=int, default=512)
    ap.add_argument("--batch-size", type=int, default=2, help="per rank")
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=13)
    return ap.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def harmonics(modes):
    """An orthonormal basis on the grid, ordered by wavenumber, with the area of each cell taken into account."""
    lat = torch.linspace(-1.5, 1.5, LAT).view(-1, 1).expand(LAT, LON).reshape(-1)
    lon = torch.linspace(0, 6.2832, LON + 1)[:-1].view(1, -1).expand(LAT, LON).reshape(-1)
    waves = sorted(((m, n) for m in range(33) for n in range(33)), key=lambda w: w[0] + w[1])[:modes // 2]
    basis = torch.stack([f(m * lon + 0.3) * torch.cos(n * lat + 0.5 * m) for m, n in waves for f in (torch.sin, torch.cos)])
    return torch.linalg.qr((basis + 1e-3 * torch.randn(basis.shape)).T)[0].T.contiguous()


def climate(n, seed):
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randn(n, FIELDS, 6, 12, generator=g)
    now = F.interpolate(coarse, (LAT, LON), mode="bicubic")
    later = 0.8 * now.roll(3, -1) + 0.2 * now.roll(1, 1) + 0.05 * torch.randn(now.shape, generator=g)
    return now, later


class SpectralMix(nn.Module):
    def __init__(self, width, basis):
        super().__init__()
        self.register_buffer("analysis", basis.T.contiguous())
        self.register_buffer("synthesis", basis.clone())
        self.scale = nn.Parameter(torch.randn(width, len(basis)) * 0.02 + 1)
        self.point = nn.Conv2d(width, width, 1)

    def forward(self, x):
        coef = x.flatten(2) @ self.analysis
        return F.gelu(self.point(x) + ((coef * self.scale) @ self.synthesis).view_as(x))


class Emulator(nn.Module):
    def __init__(self, modes, width=8, depth=4):
        super().__init__()
        basis = harmonics(modes)
        self.lift = nn.Conv2d(FIELDS, width, 1)
        self.mix = nn.Sequential(*[SpectralMix(width, basis) for _ in range(depth)])
        self.project = nn.Conv2d(width, FIELDS, 1)

    def forward(self, x):
        return x + self.project(self.mix(self.lift(x)))


def train(rank, args, port):
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // args.world_size))
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world_size)
    torch.manual_seed(args.seed)
    dataset = TensorDataset(*climate(args.states, args.seed))
    sampler = DistributedSampler(dataset, args.world_size, rank, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    area = torch.cos(torch.linspace(-1.5, 1.5, LAT)).view(1, 1, -1, 1)
    model = DDP(Emulator(args.modes), gradient_as_bucket_view=True, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)

    losses, stamps = [], []
    dist.barrier()
    start = time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for now, later in loader:
            loss = (area * (model(now) - later).square()).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            stamps.append(time.perf_counter())
        mean = torch.tensor(sum(losses[-10:]) / 10)
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch} steps {len(losses)} loss {mean.item() / args.world_size:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    if rank == 0:
        print("RESULT " + json.dumps({
            "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
            "fit_s": fit_s,
            "loss": mean.item() / args.world_size,
        }), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    arguments = get_args()
    mp.spawn(train, args=(arguments, free_port()), nprocs=arguments.world_size)
