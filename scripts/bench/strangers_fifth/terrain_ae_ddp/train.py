"""Denoising autoencoder for elevation tiles, data-parallel over two CPU ranks (gloo)."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def get_parser():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--tiles", type=int, default=2400)
    p.add_argument("--size", type=int, default=48)
    p.add_argument("--batch-size", type=int, default=12, help="per rank")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--noise", type=float, default=0.25)
    p.add_argument("--lr", type=float, default=1.5e-3)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=89)
    return p


def fractal_terrain(args):
    """Spectral synthesis: power-law noise with a random exponent for every tile."""
    g = torch.Generator().manual_seed(args.seed)
    f = torch.fft.fftfreq(args.size)
    radius = (f[:, None] ** 2 + f[None] ** 2).sqrt()
    radius[0, 0] = 1.0
    beta = 1.6 + torch.rand(args.tiles, 1, 1, generator=g)
    white = torch.randn(args.tiles, args.size, args.size, generator=g)
    z = torch.fft.ifft2(torch.fft.fft2(white) * radius ** -beta).real
    z = (z - z.mean((1, 2), keepdim=True)) / z.std((1, 2), keepdim=True)
    return z.unsqueeze(1)


def down(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, 2, 1), nn.GroupNorm(8, cout), nn.SiLU(),
                         nn.Conv2d(cout, cout, 3, 1, 1), nn.SiLU())


def up(cin, cout):
    return nn.Sequential(nn.ConvTranspose2d(cin, cout, 4, 2, 1), nn.GroupNorm(8, cout), nn.SiLU(),
                         nn.Conv2d(cout, cout, 3, 1, 1), nn.SiLU())


class TerrainAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 24, 3, 1, 1), nn.SiLU(), down(24, 48), down(48, 96))
        self.decoder = nn.Sequential(up(96, 48), up(48, 24), nn.Conv2d(24, 1, 3, 1, 1))

    def forward(self, x):
        return self.decoder(self.encoder(x))


@torch.no_grad()
def validate(model, tiles, noise):
    model.eval()
    total = torch.zeros(2, dtype=torch.float64)
    for clean in tiles.split(32):
        noisy = clean + noise * torch.randn_like(clean)
        total[0] += F.mse_loss(model(noisy), clean, reduction="sum")
        total[1] += clean.numel()
    model.train()
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def run(args):
    t0 = time.perf_counter()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    tiles = fractal_terrain(args)
    n_val = args.tiles // 10
    val = tiles[rank:n_val:world]
    train = tiles[n_val:]
    model = DDP(TerrainAE())
    torch.manual_seed(args.seed + 1 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = len(train) // (world * args.batch_size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps * args.epochs)
    out = Path(tempfile.mkdtemp(prefix="terrain_")) if rank == 0 else None

    losses, times = [], []
    for epoch in range(args.epochs):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))[rank::world]
        for step in range(steps):
            t = time.perf_counter()
            clean = train[order[step * args.batch_size:(step + 1) * args.batch_size]]
            noisy = clean + args.noise * torch.randn_like(clean)
            loss = F.mse_loss(model(noisy), clean)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            times.append(time.perf_counter() - t)
            if rank == 0 and step % args.log_every == 0:
                print(f"epoch {epoch} step {step}/{steps} mse {losses[-1]:.4f}", flush=True)
        mse = validate(model.module, val, args.noise)
        if rank == 0:
            print(f"epoch {epoch} val mse {mse:.5f}", flush=True)
            torch.save(model.module.state_dict(), out / f"epoch{epoch}.pt")
    fit_s = time.perf_counter() - t0
    last = torch.tensor(losses[-10:]).mean()
    dist.all_reduce(last)
    if rank == 0:
        print("RESULT " + json.dumps({"step_s": float(np.median(times)), "fit_s": fit_s,
                                      "loss": float(last) / world}), flush=True)
    dist.destroy_process_group()


def main():
    args = get_parser().parse_args()
    if "RANK" not in os.environ:
        cmd = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               f"--nproc_per_node={args.ranks}", os.path.abspath(__file__)] + sys.argv[1:]
        raise SystemExit(subprocess.run(cmd).returncode)
    run(args)


if __name__ == "__main__":
    main()
