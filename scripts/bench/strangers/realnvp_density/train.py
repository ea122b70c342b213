"""Density estimation with RealNVP on a 16-dimensional synthetic sensor table."""
import json
import math
import time

import torch
import torch.nn as nn

SEED = 5
DIM = 16
LAYERS = 8
HIDDEN = 96
BATCH = 256
STEPS = 320
LR = 1e-3


def make_data(n=20_000):
    g = torch.Generator().manual_seed(SEED)
    z = torch.randn(n, DIM, generator=g)
    mix = torch.randn(DIM, DIM, generator=g) / math.sqrt(DIM)
    x = torch.tanh(z @ mix) + 0.3 * torch.sin(3 * z.roll(1, dims=1)) + 0.05 * torch.randn(n, DIM, generator=g)
    return (x - x.mean(0)) / x.std(0)


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        half = dim // 2
        self.net = nn.Sequential(
            nn.Linear(half, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, 2 * half),
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)
        self.scale = nn.Parameter(torch.zeros(half))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s) * self.scale.exp()
        b = b * s.exp() + t
        out = torch.cat([b, a] if self.flip else [a, b], dim=1)
        return out, s.sum(1)


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return x * self.log_scale.exp() + self.shift, self.log_scale.sum().expand(x.size(0))


class RealNVP(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for i in range(LAYERS):
            layers += [ActNorm(DIM), Coupling(DIM, HIDDEN, flip=bool(i % 2))]
        self.layers = nn.ModuleList(layers)

    def log_prob(self, x):
        logdet = x.new_zeros(x.size(0))
        for layer in self.layers:
            x, ld = layer(x)
            logdet = logdet + ld
        base = -0.5 * (x.pow(2) + math.log(2 * math.pi)).sum(1)
        return base + logdet


def main():
    torch.manual_seed(SEED)
    torch.autograd.set_detect_anomaly(True)
    data = make_data()
    model = RealNVP()
    opt = torch.optim.Adam(model.parameters(), lr=LR)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    gen = torch.Generator().manual_seed(SEED)

    running = 0.0
    last = []
    start = time.perf_counter()
    for step in range(1, STEPS + 1):
        x = data[torch.randint(len(data), (BATCH,), generator=gen)]
        loss = -model.log_prob(x).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        sched.step()
        running += loss.item()
        last.append(loss.item())
        if step == 20:
            t20 = time.perf_counter()
        if step % 80 == 0:
            print(f"step {step:4d} nll {running / 80:.4f}")
            running = 0.0
    end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (end - t20) / (STEPS - 20),
        "fit_s": end - start,
        "loss": sum(last[-30:]) / 30,
    }))


if __name__ == "__main__":
    main()
