"""Many targets of a gas turbine from its sensors: a residual MLP with a head per target."""
import argparse
import json
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset
import tempfile

TARGETS = ["power", "nox", "co", "exhaust_temp", "inlet_temp", "efficiency"]


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=14080)
    p.add_argument("--sensors", type=int, default=40)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--depth", type=int, default=6)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class TurbineModel(L.LightningModule):
    def __init__(self, sensors, depth, lr, width=128):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Linear(sensors, width)
        self.blocks = nn.Sequential(*[ResidualBlock(width) for _ in range(depth)])
        self.heads = nn.Linear(width, len(TARGETS))

    def training_step(self, batch, _):
        x, y = batch
        errors = (self.heads(self.blocks(self.stem(x))) - y).pow(2).mean(0)
        loss = errors.mean()
        self.log("train/loss", loss)
        return loss

    def on_before_optimizer_step(self, optimizer):
        if (self.global_step + 1) % self.trainer.log_every_n_steps:
            return
        for name, p in self.named_parameters():
            self.log(f"grad_norm/{name}", p.grad.norm())
            self.log(f"weight_norm/{name}", p.detach().norm())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


class Stopwatch(L.Callback):
    def __init__(self):
        self.stamps, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())
        self.stamps.append(time.perf_counter())


def make_rows(n, sensors):
    x = torch.randn(n, sensors)
    hidden = torch.tanh(x @ torch.randn(sensors, 24) / sensors ** 0.5)
    y = hidden @ torch.randn(24, len(TARGETS)) / 5 + 0.05 * torch.randn(n, len(TARGETS))
    return TensorDataset(x, y)


def main():
    args = get_args()
    L.seed_everything(args.seed)
    loader = DataLoader(make_rows(args.rows, args.sensors), batch_size=args.batch, shuffle=True, drop_last=True)
    model = TurbineModel(args.sensors, args.depth, args.lr)
    watch = Stopwatch()
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=CSVLogger(tempfile.mkdtemp(prefix="turbine_")),
        log_every_n_steps=50, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[watch],
    )
    start = time.perf_counter()
    trainer.fit(model, loader)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (watch.stamps[-1] - watch.stamps[9]) / (len(watch.stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(watch.losses[-20:]) / 20,
    }), flush=True)


if __name__ == "__main__":
    main()
