"""Rhythm class of an ECG strip with a two-layer LSTM over strided samples."""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

RHYTHMS = 5


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--strips", type=int, default=2000)
    p.add_argument("--samples", type=int, default=640)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=13)
    return p.parse_args()


def make_strips(n, samples):
    label = torch.randint(RHYTHMS, (n,))
    t = torch.arange(samples).float()
    period = 50.0 + 14 * label.float().unsqueeze(1) + 4 * torch.randn(n, 1)
    phase = torch.rand(n, 1) * period
    beat = torch.exp(-(((t + phase) % period) - 20).pow(2) / 18)
    t_wave = 0.3 * torch.exp(-(((t + phase) % period) - 38).pow(2) / 60)
    return (beat + t_wave + 0.1 * torch.randn(n, samples)).unsqueeze(1), label


class RhythmNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.stem = nn.Conv1d(1, 64, 16, stride=8, padding=4)
        self.lstm = nn.LSTM(64, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, RHYTHMS)

    def forward(self, strip):
        x = torch.relu(self.stem(strip)).transpose(1, 2)
        h, _ = self.lstm(x)
        return self.head(h.mean(1))


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    strips, label = make_strips(args.strips, args.samples)
    model = RhythmNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)

    stamps, losses = [], []
    start = time.perf_counter()
    for step in range(args.steps):
        pick = torch.randint(args.strips, (args.batch,))
        loss = F.cross_entropy(model(strips[pick]), label[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        stamps.append(time.perf_counter())
        if step % 25 == 0:
            print(f"step {step} loss {losses[-1]:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
