"""Deep-sets tagger for toy particle jets (quark / gluon / top / W)."""
import argparse
import csv
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = ("quark", "gluon", "top", "W")


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--jets", type=int, default=7040)
    p.add_argument("--particles", type=int, default=32)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--seed", type=int, default=404)
    p.add_argument("--run-dir", default=None)
    return p.parse_args()


def generate(n, particles, rng):
    """pt, eta, phi, charge of each particle around one to three prongs."""
    label = rng.integers(0, len(CLASSES), n)
    prongs = np.array([1, 1, 3, 2])[label]
    spread = np.array([0.08, 0.18, 0.07, 0.06])[label]
    axes = rng.normal(0, 0.35, (n, 3, 2))
    which = rng.integers(0, 1 << 30, (n, particles)) % prongs[:, None]
    centre = np.take_along_axis(axes, which[..., None].repeat(2, -1), axis=1)
    position = centre + rng.normal(0, 1, (n, particles, 2)) * spread[:, None, None]
    position -= position.mean(axis=1, keepdims=True)  # jet axis
    pt = rng.exponential(1.0, (n, particles))
    pt = -np.sort(-pt, axis=1)
    charge = rng.integers(-1, 2, (n, particles))
    alive = np.arange(particles)[None] < rng.integers(particles // 2, particles + 1, (n, 1))
    x = np.stack([np.log1p(pt), position[..., 0], position[..., 1], charge], -1) * alive[..., None]
    return (torch.from_numpy(x.astype(np.float32)), torch.from_numpy(alive.astype(np.float32)),
            torch.from_numpy(label))


class DeepSets(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.rho = nn.Linear(width, classes)

    def forward(self, x, alive):
        alive = alive.unsqueeze(-1)
        pooled = (self.phi(x) * alive).sum(1) / alive.sum(1)
        return self.rho(pooled)


def batches(tensors, size, shuffle):
    n = len(tensors[0])
    order = torch.randperm(n) if shuffle else torch.arange(n)
    for i in range(0, n - size + 1, size):
        take = order[i:i + size]
        yield [t[take] for t in tensors]


@torch.no_grad()
def validate(model, tensors, size):
    model.eval()
    hits = total = 0
    for x, alive, y in batches(tensors, size, shuffle=False):
        hits += (model(x, alive).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return hits / total


def main():
    args = parse()
    run_dir = args.run_dir or tempfile.mkdtemp(prefix="jets_")
    # the cluster's nodes share their temporary folder: each run keeps its build products to itself
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(run_dir, "inductor"))
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    train = generate(args.jets, args.particles, rng)
    valid = generate(args.jets // 10, args.particles, rng)

    model = DeepSets(train[0].shape[-1], args.width, len(CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2, fused=True)
    per_epoch = args.jets // args.batch_size
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * per_epoch)

    begin = time.perf_counter()
    net = model
    step, losses, mark = 0, [], None
    with open(os.path.join(run_dir, "log.csv"), "w", newline="") as fh:
        log = csv.writer(fh)
        log.writerow(["epoch", "loss", "accuracy", "lr"])
        for epoch in range(args.epochs):
            for x, alive, y in batches(train, args.batch_size, shuffle=True):
                loss = F.cross_entropy(net(x, alive), y)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                step += 1
                if step == 10:
                    mark = time.perf_counter()
            acc = validate(model, valid, args.batch_size)
            log.writerow([epoch, np.mean(losses[-per_epoch:]), acc, schedule.get_last_lr()[0]])
            print(f"epoch {epoch}: loss {np.mean(losses[-per_epoch:]):.4f} accuracy {acc:.4f}")
    torch.save(model.state_dict(), os.path.join(run_dir, "last.pt"))
    end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (end - mark) / (step - 10), "fit_s": end - begin, "loss": float(np.mean(losses[-40:]))}))


if __name__ == "__main__":
    main()
