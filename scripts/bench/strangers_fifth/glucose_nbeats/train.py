"""N-BEATS style forecaster for continuous glucose monitoring, trained with Lightning."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--patients", type=int, default=30)
    p.add_argument("--days", type=int, default=14)
    p.add_argument("--history", type=int, default=72)
    p.add_argument("--horizon", type=int, default=12)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--stacks", type=int, default=3)
    p.add_argument("--blocks", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=47)
    return p.parse_args()


def simulate_patient(rng, days):
    n = days * 288
    meals = np.zeros(n)
    for d in range(days):
        for hour in (7.5, 12.5, 19.0):
            meals[d * 288 + int((hour + rng.normal(0, 0.5)) * 12)] = rng.uniform(40, 110)
    k = np.arange(60)
    response = np.convolve(meals, (k / 12) * np.exp(-k / 12), mode="full")[:n]
    drift = np.cumsum(rng.normal(0, 0.4, n))
    drift -= np.convolve(drift, np.ones(144) / 144, mode="same")
    return 110 + response + drift + rng.normal(0, 2, n)


def make_windows(args):
    rng = np.random.default_rng(args.seed)
    xs, ys = [], []
    for _ in range(args.patients):
        g = (simulate_patient(rng, args.days).astype(np.float32) - 130) / 45
        w = np.lib.stride_tricks.sliding_window_view(g, args.history + args.horizon)[::6]
        xs.append(w[:, :args.history])
        ys.append(w[:, args.history:])
    return torch.from_numpy(np.concatenate(xs)), torch.from_numpy(np.concatenate(ys))


class NBeatsBlock(nn.Module):
    def __init__(self, history, horizon, width):
        super().__init__()
        self.fcs = nn.ModuleList([nn.Linear(history, width)] + [nn.Linear(width, width) for _ in range(3)])
        self.theta_b = nn.Linear(width, history)
        self.theta_f = nn.Linear(width, horizon)

    def forward(self, x):
        h = x
        for fc in self.fcs:
            h = F.relu(fc(h))
        return self.theta_b(h), self.theta_f(h)


class NBeats(L.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.blocks = nn.ModuleList(
            NBeatsBlock(args.history, args.horizon, args.width) for _ in range(args.stacks * args.blocks))

    def forward(self, x):
        forecast = x[:, -1:].expand(-1, self.args.horizon)
        residual = x
        for block in self.blocks:
            back, fore = block(residual)
            residual = residual - back
            forecast = forecast + fore
        return forecast

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.smooth_l1_loss(self(x), y)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        mae = 45 * (self(x) - y).abs().mean()
        self.log("val/mae_mgdl", mae, prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.args.lr, weight_decay=1e-3)
        sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.7)
        return [opt], [sched]


class Stopwatch(Callback):
    def __init__(self):
        self.times, self.losses = [], []

    def on_train_epoch_start(self, trainer, pl_module):
        self.last = time.perf_counter()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        now = time.perf_counter()
        self.times.append(now - self.last)
        self.last = now
        self.losses.append(float(outputs["loss"]))


def main():
    t_start = time.perf_counter()
    args = parse_args()
    L.seed_everything(args.seed, verbose=False)
    x, y = make_windows(args)
    cut = int(0.85 * len(x))
    train = DataLoader(TensorDataset(x[:cut], y[:cut]), args.batch_size, shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(x[cut:], y[cut:]), 512)
    out = Path(tempfile.mkdtemp(prefix="glucose_"))
    watch = Stopwatch()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=args.epochs,
        gradient_clip_val=1.0,
        detect_anomaly=True,
        log_every_n_steps=25,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        logger=CSVLogger(out),
        callbacks=[watch, LearningRateMonitor("epoch"), ModelCheckpoint(out, monitor="val/mae_mgdl")],
    )
    trainer.fit(NBeats(args), train, val)
    fit_s = time.perf_counter() - t_start
    print(f"{len(watch.times)} steps, val MAE {trainer.callback_metrics['val/mae_mgdl']:.2f} mg/dL")
    print("RESULT " + json.dumps({"step_s": float(np.median(watch.times)), "fit_s": fit_s,
                                  "loss": float(np.mean(watch.losses[-10:]))}), flush=True)


if __name__ == "__main__":
    main()
