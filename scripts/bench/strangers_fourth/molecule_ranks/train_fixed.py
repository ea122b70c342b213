"""Solubility of molecules with a message passing network on two ranks (DDP, gloo).

Molecules of a batch are concatenated into one graph, so there is no padding.
Start with torchrun, or plainly with python (then the ranks are spawned here).
"""
import argparse
import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

ATOM_TYPES = 16


class Molecules:
    """Random trees with a few rings; sizes as uneven as in the screening library."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.sizes = (14 * torch.exp(1.25 * torch.randn(n, generator=g))).long().clamp(4, 400)
        weight = torch.randn(ATOM_TYPES, generator=g)
        self.atoms, self.bonds, targets = [], [], []
        for size in self.sizes.tolist():
            atoms = torch.randint(ATOM_TYPES, (size,), generator=g)
            child = torch.arange(1, size)
            parent = (child - 1 - (torch.rand(size - 1, generator=g) * child.clamp(max=4)).long()).clamp(min=0)
            rings = torch.randint(size, (2, size // 6 + 1), generator=g)
            src, dst = torch.cat([parent, rings[0]]), torch.cat([child, rings[1]])
            self.atoms.append(atoms)
            self.bonds.append(torch.stack([torch.cat([src, dst]), torch.cat([dst, src])]))
            targets.append(weight[atoms].mean() * 3 + 0.5 * (weight[atoms[src]] * weight[atoms[dst]]).mean())
        self.targets = torch.stack(targets)

    def __len__(self):
        return len(self.targets)

    def batch(self, indices):
        sizes = self.sizes[indices]
        offsets = torch.cumsum(sizes, 0) - sizes
        atoms = torch.cat([self.atoms[i] for i in indices])
        bonds = torch.cat([self.bonds[i] + o for i, o in zip(indices, offsets)], dim=1)
        owner = torch.repeat_interleave(torch.arange(len(indices)), sizes)
        return atoms, bonds, owner, sizes, self.targets[indices]


class MessagePassing(nn.Module):
    def __init__(self, hidden, rounds):
        super().__init__()
        self.embed = nn.Embedding(ATOM_TYPES, hidden)
        self.message = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(rounds))
        self.update = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden)) for _ in range(rounds)
        )
        self.readout = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, atoms, bonds, owner, sizes):
        h = self.embed(atoms)
        for message, update in zip(self.message, self.update):
            gathered = torch.zeros_like(h).index_add_(0, bonds[1], message(h)[bonds[0]])
            h = h + update(torch.cat([h, gathered], dim=1))
        pooled = h.new_zeros(len(sizes), h.shape[1]).index_add_(0, owner, h)
        return self.readout(pooled / sizes[:, None]).squeeze(1)


def share_of_rank(batch, sizes, rank, world):
    """The part of the global batch for this rank; large and small molecules are dealt in turn."""
    by_size = batch[sizes[batch].argsort()]
    return by_size[rank::world]


def fit(rank, world, args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    library = Molecules(args.molecules, args.seed)
    model = DistributedDataParallel(MessagePassing(args.hidden, args.rounds))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    order = torch.Generator().manual_seed(args.seed + 1)
    losses, stamps = [], []
    begin = time.perf_counter()
    for step in range(args.steps):
        batch = torch.randperm(len(library), generator=order)[: args.batch]
        *graph, target = library.batch(share_of_rank(batch, library.sizes, rank, world))
        loss = nn.functional.mse_loss(model(*graph), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        stamps.append(time.perf_counter())
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: mse {loss.item():.4f}", flush=True)
    last = torch.stack(losses[-20:]).mean()
    dist.all_reduce(last)
    if rank == 0:
        print("RESULT " + json.dumps({
            "step_s": (stamps[-1] - stamps[4]) / (len(stamps) - 5),
            "fit_s": time.perf_counter() - begin,
            "loss": (last / world).item(),
        }), flush=True)


def run(rank, world, port, args):
    if port is not None:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    fit(rank, world, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--molecules", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=18)
    args = parser.parse_args()
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), None, args)
    else:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            free = s.getsockname()[1]
        torch.multiprocessing.spawn(run, (2, free, args), nprocs=2)
