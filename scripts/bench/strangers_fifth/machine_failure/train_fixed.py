"""Failure-mode prediction from machine telemetry; tabular ResNet, Lightning + torchmetrics."""
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC


@dataclass
class Config:
    rows: int = 56_000
    sensors: int = 60
    modes: int = 8
    width: int = 256
    depth: int = 4
    batch_size: int = 256
    epochs: int = 2
    lr: float = 1e-3
    seed: int = 53


def make_telemetry(cfg):
    rng = np.random.default_rng(cfg.seed)
    y = rng.integers(0, cfg.modes, cfg.rows)
    centres = rng.normal(0, 0.35, (cfg.modes, cfg.sensors))
    mix = rng.normal(0, 1, (cfg.sensors, cfg.sensors)) / np.sqrt(cfg.sensors)
    x = centres[y] + rng.normal(size=(cfg.rows, cfg.sensors)) @ mix
    x[:, ::5] = np.abs(x[:, ::5])
    x[rng.random(x.shape) < 0.03] = 0.0
    x = (x - x.mean(0)) / x.std(0)
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


class TelemetryData(L.LightningDataModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage=None):
        x, y = make_telemetry(self.cfg)
        n_val = self.cfg.rows // 10
        self.train_set = TensorDataset(x[n_val:], y[n_val:])
        self.val_set = TensorDataset(x[:n_val], y[:n_val])

    def train_dataloader(self):
        return DataLoader(self.train_set, self.cfg.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 1024)


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.a, self.b = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.b(self.drop(F.relu(self.a(self.norm(x)))))


class FailureModel(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.net = nn.Sequential(
            nn.Linear(cfg.sensors, cfg.width),
            *[ResBlock(cfg.width) for _ in range(cfg.depth)],
            nn.LayerNorm(cfg.width), nn.ReLU(), nn.Linear(cfg.width, cfg.modes))
        self.train_auroc = MulticlassAUROC(cfg.modes)
        self.val_auroc = MulticlassAUROC(cfg.modes)
        self.val_acc = MulticlassAccuracy(cfg.modes)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.log("train_loss", loss)
        self.train_auroc.update(logits.detach().softmax(-1), y)
        self.log("train_auroc", self.train_auroc, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_auroc.update(logits.softmax(-1), y)
        self.val_acc.update(logits, y)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_auroc", self.val_auroc)
        self.log("val_acc", self.val_acc)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.cfg.lr, weight_decay=1e-2)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.cfg.epochs)
        return {"optimizer": opt, "lr_scheduler": sched}


class TimingCallback(Callback):
    def __init__(self):
        self.step_times, self.losses = [], []

    def on_train_epoch_start(self, trainer, pl_module):
        self.mark = time.perf_counter()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        now = time.perf_counter()
        self.step_times.append(now - self.mark)
        self.mark = now
        self.losses.append(outputs["loss"].item())


def main():
    began = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed)
    root = Path(tempfile.mkdtemp(prefix="telemetry_"))
    timing = TimingCallback()
    trainer = L.Trainer(
        max_epochs=cfg.epochs,
        accelerator="cpu",
        logger=CSVLogger(root),
        log_every_n_steps=20,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        callbacks=[timing, ModelCheckpoint(root / "ckpt", monitor="val_loss")],
    )
    trainer.fit(FailureModel(cfg), datamodule=TelemetryData(cfg))
    fit_s = time.perf_counter() - began
    for name, value in trainer.callback_metrics.items():
        print(f"{name:12s} {float(value):.4f}")
    print("RESULT " + json.dumps({
        "step_s": float(np.median(timing.step_times)),
        "fit_s": fit_s,
        "loss": float(np.mean(timing.losses[-10:])),
    }), flush=True)


if __name__ == "__main__":
    main()
