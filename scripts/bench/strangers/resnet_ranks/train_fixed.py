"""Data-parallel training of a small residual network on two CPU ranks (gloo)."""
import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

SEED = 43
WORLD = 2
CLASSES = 10
BATCH = 16  # a rank
EPOCHS = 4
N = 2240


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride=stride, bias=False) if cin != cout else nn.Identity()

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.skip(x) + self.norm2(self.conv2(h)))


def make_model():
    layers = [nn.Conv2d(3, 12, 3, stride=2, padding=1)]
    width = 12
    for cout, stride in ((12, 1), (12, 1), (12, 1), (24, 2), (24, 1), (24, 1), (48, 2), (48, 1), (48, 1)):
        layers.append(Block(width, cout, stride))
        width = cout
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def make_images():
    g = torch.Generator().manual_seed(SEED)
    y = torch.randint(CLASSES, (N,), generator=g)
    proto = F.interpolate(torch.randn(CLASSES, 3, 6, 6, generator=g), size=24, mode="bilinear")
    return proto[y] + 0.8 * torch.randn(N, 3, 24, 24, generator=g), y


def average_gradients(model):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat /= WORLD
    torch._foreach_copy_(grads, [f.view_as(g) for f, g in zip(flat.split([g.numel() for g in grads]), grads)])


def worker(rank, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(SEED)
    x, y = make_images()
    model = make_model()
    opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    gen = torch.Generator().manual_seed(SEED)

    step, losses = 0, []
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        perm = torch.randperm(N, generator=gen)[rank::WORLD]
        for idx in perm.split(BATCH):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            average_gradients(model)
            opt.step()
            losses.append(loss.item())
            step += 1
            if step == 20:
                t20 = time.perf_counter()
        if rank == 0:
            print(f"epoch {epoch} loss {sum(losses[-70:]) / 70:.4f}", flush=True)
    end = time.perf_counter()
    if rank == 0:
        print("RESULT " + json.dumps({
            "step_s": (end - t20) / (step - 20),
            "fit_s": end - start,
            "loss": sum(losses[-30:]) / 30,
        }), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    mp.spawn(worker, args=(free_port(),), nprocs=WORLD)


if __name__ == "__main__":
    main()
