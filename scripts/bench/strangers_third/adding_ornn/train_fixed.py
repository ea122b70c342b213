"""The adding problem with an orthogonal recurrent network."""
import argparse
import json
import time

import torch
import torch.nn as nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--length", type=int, default=32)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=64)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=8)
    return p.parse_args()


def adding_batch(batch, length):
    value = torch.rand(batch, length)
    marks = torch.zeros(batch, length)
    half = length // 2
    rows = torch.arange(batch)
    marks[rows, torch.randint(half, (batch,))] = 1.0
    marks[rows, half + torch.randint(length - half, (batch,))] = 1.0
    return torch.stack([value, marks], -1), (value * marks).sum(1)


class OrthogonalRNN(nn.Module):
    """h_t = modrelu(Q h_{t-1} + W x_t) with Q kept orthogonal by parametrization."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.inp = nn.Linear(inputs, hidden)
        self.rec = orthogonal(nn.Linear(hidden, hidden, bias=False))
        self.threshold = nn.Parameter(torch.zeros(hidden))
        self.head = nn.Linear(hidden, 1)

    def modrelu(self, x):
        return torch.sign(x) * torch.relu(x.abs() + self.threshold)

    def forward(self, x):
        drive = self.inp(x)
        h = x.new_zeros(x.size(0), self.hidden)
        with parametrize.cached():
            for t in range(x.size(1)):
                h = self.modrelu(self.rec(h) + drive[:, t])
        return self.head(h).squeeze(-1)


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    model = OrthogonalRNN(2, args.hidden)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr, alpha=0.9)

    stamps, losses = [], []
    start = time.perf_counter()
    for step in range(args.steps):
        x, y = adding_batch(args.batch, args.length)
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        stamps.append(time.perf_counter())
        if step % 20 == 0:
            print(f"step {step} mse {losses[-1]:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
