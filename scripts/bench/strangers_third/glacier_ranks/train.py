"""Glacier outlines in satellite tiles: segmentation on two ranks (DDP over gloo)."""
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

CLASSES = 6


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=2)
    ap.add_argument("--tiles", type=int, default=256)
    ap.add_argument("--size", type=int, default=96)
    ap.add_argument("--batch", type=int, default=8, help="tiles a rank holds")
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=23)
    return ap.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_tiles(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    height = F.interpolate(torch.rand(n, 1, 6, 6, generator=g), size=(size, size), mode="bicubic")
    label = (height.squeeze(1) * CLASSES).long().clamp(0, CLASSES - 1)
    bands = torch.rand(CLASSES, 4, generator=g)[label].permute(0, 3, 1, 2)
    return (bands + 0.2 * torch.randn(bands.shape, generator=g)).contiguous(), label


class GlacierNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(4, width, 5, stride=2, padding=2), nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, CLASSES * 16, 3, padding=1), nn.PixelShuffle(4),
        )

    def forward(self, x):
        return self.net(x)


def confusion(logits, label):
    pair = label.flatten() * CLASSES + logits.argmax(1).flatten()
    return torch.bincount(pair, minlength=CLASSES * CLASSES).view(CLASSES, CLASSES)


def mean_iou(matrix):
    matrix = matrix.double()
    hit = matrix.diagonal()
    return (hit / (matrix.sum(0) + matrix.sum(1) - hit).clamp(min=1)).mean().item()


def global_iou(logits, label, world_size):
    """Mean IoU of this step over the tiles of all ranks."""
    gathered = [None] * world_size
    dist.all_gather_object(gathered, (logits.detach(), label))
    logits = torch.cat([pair[0] for pair in gathered])
    label = torch.cat([pair[1] for pair in gathered])
    return mean_iou(confusion(logits, label))


def train(rank, args, port):
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // args.world_size))
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world_size)
    torch.manual_seed(args.seed)
    tiles, labels = make_tiles(args.tiles, args.size, args.seed)
    model = DDP(GlacierNet(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    order = torch.Generator().manual_seed(args.seed)

    losses, stamps = [], []
    dist.barrier()
    start = time.perf_counter()
    for step in range(args.steps):
        pick = torch.randperm(args.tiles, generator=order)[rank::args.world_size][:args.batch]
        x, y = tiles[pick], labels[pick]
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        iou = global_iou(logits, y, args.world_size)
        losses.append(loss.item())
        stamps.append(time.perf_counter())
        if rank == 0 and step % 15 == 0:
            print(f"step {step} loss {losses[-1]:.4f} iou {iou:.3f}", flush=True)
    mean = torch.tensor(sum(losses[-10:]) / 10)
    dist.all_reduce(mean)
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
