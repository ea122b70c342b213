"""Remaining hours of pump bearings from vibration windows, dilated convolutions, Lightning."""
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
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanAbsoluteError


@dataclass
class Config:
    n_train: int = 832
    n_val: int = 480
    n_sensors: int = 6
    window: int = 256
    channels: int = 32
    levels: int = 4
    batch_size: int = 32
    epochs: int = 6
    lr: float = 1e-3
    seed: int = 29


class VibrationWindows(Dataset):
    """Windows of accelerometer data; amplitude and pitch grow as the bearing wears."""

    def __init__(self, cfg: Config, n: int, seed: int):
        rng = np.random.default_rng(seed)
        t = np.arange(cfg.window, dtype=np.float32) / cfg.window
        wear = rng.uniform(0, 1, n).astype(np.float32)
        phase = rng.uniform(0, 2 * np.pi, (n, cfg.n_sensors, 1)).astype(np.float32)
        freq = (8 + 20 * wear)[:, None, None]
        signal = (0.5 + wear)[:, None, None] * np.sin(2 * np.pi * freq * t + phase)
        signal = signal + 0.8 * rng.standard_normal(signal.shape, dtype=np.float32)
        self.x = torch.from_numpy(signal.astype(np.float32))
        self.hours = torch.from_numpy(10 * (1 - wear) ** 1.5)

    def __len__(self):
        return len(self.hours)

    def __getitem__(self, i):
        return self.x[i], self.hours[i]


class PumpData(L.LightningDataModule):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage=None):
        self.train_set = VibrationWindows(self.cfg, self.cfg.n_train, 1)
        self.val_set = VibrationWindows(self.cfg, self.cfg.n_val, 2)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.cfg.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set)


class DilatedBlock(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.conv1 = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation)
        self.conv2 = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, c)

    def forward(self, x):
        y = F.gelu(self.conv1(x))
        return x + self.norm(F.gelu(self.conv2(y)))


class WearRegressor(L.LightningModule):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.stem = nn.Conv1d(cfg.n_sensors, cfg.channels, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*[DilatedBlock(cfg.channels, 2 ** k) for k in range(cfg.levels)])
        self.head = nn.Sequential(nn.Linear(2 * cfg.channels, 64), nn.GELU(), nn.Linear(64, 1))
        self.val_mae = MeanAbsoluteError()

    def forward(self, x):
        h = self.blocks(self.stem(x))
        return self.head(torch.cat([h.mean(2), h.amax(2)], dim=1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, hours = batch
        loss = F.smooth_l1_loss(self(x), hours)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, hours = batch
        pred = self(x)
        self.val_mae.update(pred, hours)
        self.log("val_loss", F.smooth_l1_loss(pred, hours), batch_size=len(hours))
        self.log("val_mae", self.val_mae, on_epoch=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.cfg.lr, weight_decay=1e-2)
        sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "monitor": "val_loss"}}


class StepRecorder(Callback):
    def __init__(self):
        self.ends, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].detach())
        self.ends.append(time.perf_counter())


def main():
    start = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        rec = StepRecorder()
        ckpt = ModelCheckpoint(dirpath=root / "ckpt", monitor="val_mae", mode="min")
        trainer = L.Trainer(
            max_epochs=cfg.epochs, accelerator="cpu", devices=1, callbacks=[rec, ckpt],
            logger=CSVLogger(root, name="logs"), log_every_n_steps=20, num_sanity_val_steps=0,
            gradient_clip_val=1.0, enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(WearRegressor(cfg), datamodule=PumpData(cfg))
        print("best val_mae", float(ckpt.best_model_score))
    fit_s = time.perf_counter() - start
    loss = float(torch.stack(rec.losses[-10:]).mean())
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(rec.ends))), "fit_s": fit_s, "loss": loss}))


if __name__ == "__main__":
    main()
