"""Toxicity prediction from molecular fingerprints, two ranks (DDP over gloo)."""
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

ASSAYS = 12


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=2)
    ap.add_argument("--molecules", type=int, default=9216)
    ap.add_argument("--bits", type=int, default=2048)
    ap.add_argument("--width", type=int, default=896)
    ap.add_argument("--micro-batch", type=int, default=32, help="molecules a rank holds at a time")
    ap.add_argument("--accumulate", type=int, default=4, help="micro-batches per optimizer step")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--seed", type=int, default=5)
    return ap.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fingerprints(n, bits, seed):
    """Sparse bits by scaffold; assay outcomes depend on hidden groups of bits; a third is not measured."""
    g = torch.Generator().manual_seed(seed)
    scaffold = torch.rand(64, bits, generator=g) < 0.04
    x = scaffold[torch.randint(64, (n,), generator=g)] ^ (torch.rand(n, bits, generator=g) < 0.01)
    x = x.float()
    rule = torch.randn(bits, ASSAYS, generator=g) * (torch.rand(bits, ASSAYS, generator=g) < 0.05)
    y = ((x @ rule + 0.5 * torch.randn(n, ASSAYS, generator=g)) > 0.5).float()
    measured = (torch.rand(n, ASSAYS, generator=g) > 0.33).float()
    return x, y, measured


class ToxNet(nn.Module):
    def __init__(self, bits, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(bits, width), nn.LayerNorm(width), nn.SELU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.SELU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.SELU(),
        )
        self.heads = nn.Linear(width, ASSAYS)

    def forward(self, x):
        return self.heads(self.body(x))


def masked_bce(logits, target, measured):
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return (loss * measured).sum() / measured.sum()


def train(rank, args, port):
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // args.world_size))
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world_size)
    torch.manual_seed(args.seed)
    dataset = TensorDataset(*fingerprints(args.molecules, args.bits, args.seed))
    sampler = DistributedSampler(dataset, args.world_size, rank, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(dataset, batch_size=args.micro_batch, sampler=sampler, drop_last=True)
    model = DDP(ToxNet(args.bits, args.width), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)

    losses, stamps = [], []
    dist.barrier()
    start = time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for i, (x, y, measured) in enumerate(loader):
            loss = masked_bce(model(x), y, measured) / args.accumulate
            loss.backward()
            running += loss.item()
            if (i + 1) % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                losses.append(running)
                running = 0.0
                stamps.append(time.perf_counter())
        mean = torch.tensor(sum(losses[-10:]) / 10)
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch} steps {len(losses)} loss {mean.item() / args.world_size:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    if rank == 0:
        torch.save(model.module.state_dict(), os.devnull)
        print("RESULT " + json.dumps({
            "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
            "fit_s": fit_s,
            "loss": mean.item() / args.world_size,
        }), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    arguments = get_args()
    mp.spawn(train, args=(arguments, free_port()), nprocs=arguments.world_size)
