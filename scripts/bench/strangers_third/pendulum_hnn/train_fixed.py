"""Hamiltonian network for a double-well pendulum: learns the energy from phase-space velocities."""
import argparse
import json
import os
import tempfile
import time

import torch
import torch.nn as nn


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--points", type=int, default=20000)
    p.add_argument("--batch", type=int, default=384)
    p.add_argument("--steps", type=int, default=850)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--run-dir", default=None)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def phase_space(n):
    q, p = torch.empty(n).uniform_(-3, 3), torch.empty(n).uniform_(-2, 2)
    state = torch.stack([q, p], 1)
    velocity = torch.stack([p, -torch.sin(q) + 0.5 * q - 0.1 * q ** 3], 1)
    return state, velocity + 0.02 * torch.randn(n, 2)


class HNN(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.energy = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, 1, bias=False),
        )

    def forward(self, state):
        state = state.detach().requires_grad_(True)
        h = self.energy(state).sum()
        dq, dp = torch.autograd.grad(h, state, create_graph=True)[0].unbind(1)
        return torch.stack([dp, -dq], 1)


class History:
    """Keeps the curves of a run; the dashboard reads them from history.jsonl."""

    def __init__(self, run_dir):
        self.file = open(os.path.join(run_dir, "history.jsonl"), "w")

    def add(self, **values):
        self.file.write(json.dumps(values) + "\n")


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    run_dir = args.run_dir or tempfile.mkdtemp(prefix="hnn_")
    state, velocity = phase_space(args.points)
    model = HNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 400, 0.5)
    history = History(run_dir)

    stamps, losses = [], []
    start = time.perf_counter()
    for step in range(args.steps):
        pick = torch.randint(args.points, (args.batch,))
        loss = (model(state[pick]) - velocity[pick]).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        history.add(step=step, loss=losses[-1], grad_norm=norm.item(),
                    lr=schedule.get_last_lr()[0], time=time.perf_counter() - start)
        stamps.append(time.perf_counter())
        if step % 200 == 0:
            print(f"step {step} loss {losses[-1]:.5f}", flush=True)
    history.file.close()
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-20:]) / 20,
    }), flush=True)


if __name__ == "__main__":
    main()
