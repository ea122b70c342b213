"""P-wave arrival picking on three-component waveforms (PyTorch Lightning)."""
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import lightning as L
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    events: int = 320
    samples: int = 512
    picks: int = 40_000
    batch_size: int = 24
    workers: int = 2
    epochs: int = 24
    lr: float = 2e-3
    seed: int = 41


def build_archive(root, cfg):
    rng = np.random.default_rng(cfg.seed)
    n = cfg.samples
    waves = np.lib.format.open_memmap(root / "waves.npy", "w+", np.float32, (cfg.events, 3, n))
    onsets = rng.integers(80, n - 120, cfg.events)
    t = np.arange(n)
    for i, onset in enumerate(onsets):
        burst = np.where(t >= onset, np.exp(-(t - onset) / 60.0) * np.sin((t - onset) * rng.uniform(0.3, 0.7)), 0)
        waves[i] = rng.normal(0, 0.25, (3, n)) + rng.uniform(0.6, 1.6, (3, 1)) * burst
    waves.flush()
    events = rng.integers(0, cfg.events, cfg.picks)
    events[: cfg.events] = np.arange(cfg.events)
    stamps = pd.Timestamp("2019-03-01") + pd.to_timedelta(onsets[events], unit="ms")
    pd.DataFrame({
        "event": events,
        "time": stamps.strftime("%Y-%m-%dT%H:%M:%S.%f"),
        "station": [f"ST{k:03d}" for k in rng.integers(0, 300, cfg.picks)],
        "weight": rng.random(cfg.picks).round(4),
    }).to_csv(root / "picks.csv", index=False)


class WaveformDataset(Dataset):
    """The archive is opened by the process that reads it, on its first access."""

    def __init__(self, root, events, cfg, train):
        self.root, self.events, self.cfg, self.train = Path(root), list(events), cfg, train
        self.waves = None
        self.onsets = None

    def _open(self):
        self.waves = np.load(self.root / "waves.npy", mmap_mode="r")
        picks = pd.read_csv(self.root / "picks.csv", parse_dates=["time"])
        ms = (picks["time"] - pd.Timestamp("2019-03-01")) / pd.Timedelta(milliseconds=1)
        self.onsets = ms.groupby(picks["event"]).first().to_dict()

    def __len__(self):
        return len(self.events)

    def __getitem__(self, i):
        if self.waves is None:
            self._open()
        event = self.events[i]
        x = torch.from_numpy(np.array(self.waves[event]))
        onset = int(self.onsets[event])
        if self.train:
            shift = int(torch.randint(-60, 61, ()))
            x, onset = x.roll(shift, -1), onset + shift
        target = torch.exp(-0.5 * ((torch.arange(self.cfg.samples) - onset) / 6.0) ** 2)
        return (x - x.mean(-1, keepdim=True)) / x.std(), target


class WaveformData(L.LightningDataModule):
    def __init__(self, root, cfg):
        super().__init__()
        self.root, self.cfg = root, cfg
        self.n_val = cfg.events // 10

    def _loader(self, events, train):
        ds = WaveformDataset(self.root, events, self.cfg, train)
        return DataLoader(ds, self.cfg.batch_size, shuffle=train, drop_last=train,
                          num_workers=self.cfg.workers)

    def train_dataloader(self):
        return self._loader(range(self.n_val, self.cfg.events), True)

    def val_dataloader(self):
        return self._loader(range(self.n_val), False)


class Picker(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        layers, c = [], 3
        for width, dilation in ((32, 1), (48, 2), (48, 4), (48, 8)):
            layers += [nn.Conv1d(c, width, 7, padding=3 * dilation, dilation=dilation),
                       nn.BatchNorm1d(width), nn.ReLU()]
            c = width
        self.net = nn.Sequential(*layers, nn.Conv1d(c, 1, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)

    def training_step(self, batch, _):
        x, y = batch
        loss = F.binary_cross_entropy_with_logits(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        out = self(x)
        self.log("val_loss", F.binary_cross_entropy_with_logits(out, y))
        self.log("val_mae", (out.argmax(1) - y.argmax(1)).abs().float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class StepTimer(Callback):
    def __init__(self):
        self.times, self.losses = [], []

    def on_train_epoch_start(self, trainer, module):
        self.t = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        now = time.perf_counter()
        self.times.append(now - self.t)
        self.losses.append(outputs["loss"].item())
        self.t = now


def main():
    t0 = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed)
    root = Path(tempfile.mkdtemp(prefix="seismic_"))
    build_archive(root, cfg)
    timer = StepTimer()
    trainer = L.Trainer(
        max_epochs=cfg.epochs, accelerator="cpu", logger=CSVLogger(root), enable_progress_bar=False,
        callbacks=[timer, ModelCheckpoint(root / "ckpt", monitor="val_loss")], log_every_n_steps=12)
    trainer.fit(Picker(cfg.lr), datamodule=WaveformData(root, cfg))
    fit_s = time.perf_counter() - t0
    print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})
    print("RESULT " + json.dumps({"step_s": float(np.median(timer.times)), "fit_s": fit_s,
                                  "loss": float(np.mean(timer.losses[-10:]))}), flush=True)


if __name__ == "__main__":
    main()
