"""Earthquake or noise from three-component waveforms, two ranks (DDP over gloo)."""
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


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=2)
    ap.add_argument("--traces", type=int, default=640)
    ap.add_argument("--held-out", type=int, default=2816)
    ap.add_argument("--samples", type=int, default=768)
    ap.add_argument("--batch", type=int, default=32, help="traces a rank holds")
    ap.add_argument("--epochs", type=int, default=7)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=41)
    return ap.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def waveforms(n, samples, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(samples).float()
    quake = torch.randint(2, (n,), generator=g)
    onset = torch.randint(samples // 8, samples // 2, (n, 1, 1), generator=g)
    since = (t - onset).clamp(min=0)
    wave = torch.sin(since * (0.2 + 0.2 * torch.rand(n, 3, 1, generator=g))) * torch.exp(-since / 90)
    return torch.randn(n, 3, samples, generator=g) + 1.2 * wave * quake.view(-1, 1, 1), quake.float()


class QuakeNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(3, width, 11, stride=2, padding=5), nn.ReLU(inplace=True),
            nn.Conv1d(width, 2 * width, 7, stride=2, padding=3), nn.ReLU(inplace=True),
            nn.Conv1d(2 * width, 2 * width, 7, stride=2, padding=3), nn.ReLU(inplace=True),
            nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(2 * width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


@torch.no_grad()
def evaluate(model, x, y, batch=128):
    model.eval()
    total = torch.zeros(3, dtype=torch.double)
    for at in range(0, len(x), batch):
        logit, target = model(x[at:at + batch]), y[at:at + batch]
        total[0] += F.binary_cross_entropy_with_logits(logit, target, reduction="sum")
        total[1] += ((logit > 0) == (target > 0.5)).sum()
        total[2] += len(target)
    model.train()
    return total


def train(rank, args, port):
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // args.world_size))
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world_size)
    torch.manual_seed(args.seed)
    x, y = waveforms(args.traces, args.samples, args.seed)
    held_x, held_y = waveforms(args.held_out, args.samples, args.seed + 1)
    model = DDP(QuakeNet(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    shuffle = torch.Generator().manual_seed(args.seed)

    losses, spans = [], []
    dist.barrier()
    start = time.perf_counter()
    for epoch in range(args.epochs):
        own = torch.randperm(args.traces, generator=shuffle)[rank::args.world_size]
        for pick in own.split(args.batch):
            begin = time.perf_counter()
            loss = F.binary_cross_entropy_with_logits(model(x[pick]), y[pick])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            spans.append(time.perf_counter() - begin)
        if rank == 0:
            total = evaluate(model.module, held_x, held_y)
            print(f"epoch {epoch} held-out loss {total[0] / total[2]:.4f} accuracy {total[1] / total[2]:.3f}", flush=True)
        dist.barrier()
    fit_s = time.perf_counter() - start
    if rank == 0:
        print("RESULT " + json.dumps({
            "step_s": sum(spans[10:]) / (len(spans) - 10),
            "fit_s": fit_s,
            "loss": sum(losses[-10:]) / 10,
        }), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    arguments = get_args()
    mp.spawn(train, args=(arguments, free_port()), nprocs=arguments.world_size)
