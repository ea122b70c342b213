"""Temporal convolutional network forecasting 24 hours of load from one week of history."""
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 2
SERIES, LENGTH = 40, 2400
HISTORY, HORIZON = 168, 24
CHANNELS = 32
BATCH = 32
EPOCHS = 4
STEPS_PER_EPOCH = 80


def make_series():
    rng = np.random.default_rng(SEED)
    t = np.arange(LENGTH)
    daily = np.sin(2 * np.pi * t / 24 + rng.uniform(0, 6, (SERIES, 1)))
    weekly = 0.5 * np.sin(2 * np.pi * t / 168 + rng.uniform(0, 6, (SERIES, 1)))
    noise = np.cumsum(rng.normal(0, 0.02, (SERIES, LENGTH)), axis=1) + rng.normal(0, 0.1, (SERIES, LENGTH))
    x = daily + weekly + noise
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    return torch.from_numpy(x.astype(np.float32))


class Block(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv1 = nn.Conv1d(c, c, 3, dilation=dilation)
        self.conv2 = nn.Conv1d(c, c, 1)

    def forward(self, x):
        h = F.relu(self.conv1(F.pad(x, (self.pad, 0))))
        return x + self.conv2(h)


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(1, CHANNELS, 1)
        self.blocks = nn.Sequential(*[Block(CHANNELS, 2 ** i) for i in range(6)])
        self.head = nn.Conv1d(CHANNELS, HORIZON, 1)

    def forward(self, x):
        h = self.blocks(self.inp(x.unsqueeze(1)))
        return self.head(F.relu(h))  # a forecast at each hour


def forecast_loss(model, batch):
    target = batch[:, 1:].unfold(1, HORIZON, 1).transpose(1, 2)
    return F.l1_loss(model(batch[:, :HISTORY]), target)


def main():
    torch.manual_seed(SEED)
    series = make_series()
    windows = series.unfold(1, HISTORY + HORIZON, 1)  # a view, nothing copied
    n_win = windows.size(1)
    split = int(n_win * 0.9)
    gen = torch.Generator().manual_seed(SEED)
    val = windows[:, split::90].reshape(-1, HISTORY + HORIZON)

    model = TCN()
    steps = EPOCHS * STEPS_PER_EPOCH
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=steps)

    step, paused, last = 0, 0.0, []
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        model.train()
        for _ in range(STEPS_PER_EPOCH):
            si = torch.randint(SERIES, (BATCH,), generator=gen)
            wi = torch.randint(split, (BATCH,), generator=gen)
            batch = windows[si, wi]
            loss = forecast_loss(model, batch)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            last.append(loss.detach())
            step += 1
            if step == 20:
                t20 = time.perf_counter()
        tv = time.perf_counter()
        model.eval()
        with torch.inference_mode():
            v = forecast_loss(model, val).item()
        paused += time.perf_counter() - tv
        print(f"epoch {epoch} train {torch.stack(last[-STEPS_PER_EPOCH:]).mean():.4f} val {v:.4f}")
    end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (end - t20 - paused) / (step - 20),
        "fit_s": end - start,
        "loss": torch.stack(last[-30:]).mean().item(),
    }))


if __name__ == "__main__":
    main()
