"""Forecast of substation load, six hours ahead, from three days of history."""
import json
import logging
import statistics
import tempfile
import time
import warnings
from dataclasses import dataclass

import lightning as L
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore")

FEATURES = ["load", "temperature", "hour_sin", "hour_cos", "weekend", "wind"]


@dataclass
class Config:
    stations: int = 8
    hours: int = 1100
    val_hours: int = 160
    history: int = 72
    horizon: int = 6
    channels: int = 40
    batch_size: int = 96
    epochs: int = 2
    lr: float = 1e-3
    seed: int = 31


def measurements(cfg):
    """Hourly measurements of all substations as one long table."""
    rng = np.random.default_rng(cfg.seed)
    time_index = pd.date_range("2024-01-01", periods=cfg.hours + cfg.val_hours, freq="h")
    hour = time_index.hour.to_numpy()
    frames = []
    for station in range(cfg.stations):
        temperature = 8 + 6 * np.sin(2 * np.pi * (hour - 9) / 24) + rng.normal(0, 0.1, len(hour)).cumsum()
        wind = rng.gamma(2.0, 2.0, len(hour))
        weekend = (time_index.dayofweek >= 5).astype(float)
        load = (40 + 15 * np.sin(2 * np.pi * (hour - rng.uniform(5, 9)) / 24) - 0.6 * temperature
                - 6 * weekend + 0.3 * wind + rng.normal(0, 1.5, len(hour)))
        frames.append(pd.DataFrame({
            "station": station, "time": time_index, "load": load, "temperature": temperature,
            "hour_sin": np.sin(2 * np.pi * hour / 24), "hour_cos": np.cos(2 * np.pi * hour / 24),
            "weekend": weekend, "wind": wind,
        }))
    table = pd.concat(frames, ignore_index=True)
    for column in ("load", "temperature", "wind"):
        table[column] = (table[column] - table[column].mean()) / table[column].std()
    return table


class WindowDataset(Dataset):
    def __init__(self, table, cfg):
        histories, targets = [], []
        for _, station in table.groupby("station"):
            past = station[FEATURES].to_numpy(dtype=np.float32)[:-cfg.horizon]
            future = station["load"].to_numpy(dtype=np.float32)[cfg.history:]
            histories.append(np.lib.stride_tricks.sliding_window_view(past, cfg.history, axis=0))
            targets.append(np.lib.stride_tricks.sliding_window_view(future, cfg.horizon))
        self.histories = torch.from_numpy(np.concatenate(histories))
        self.targets = torch.from_numpy(np.concatenate(targets))

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, rows):
        return self.histories[rows], self.targets[rows]


class LoadData(L.LightningDataModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage):
        table = measurements(self.cfg)
        split = table["time"].min() + pd.Timedelta(hours=self.cfg.hours)
        self.train = WindowDataset(table[table["time"] < split], self.cfg)
        self.val = WindowDataset(table[table["time"] >= split], self.cfg)

    def train_dataloader(self):
        sampler = BatchSampler(RandomSampler(self.train), self.cfg.batch_size, drop_last=True)
        return DataLoader(self.train, sampler=sampler, batch_size=None)

    def val_dataloader(self):
        sampler = BatchSampler(SequentialSampler(self.val), 512, drop_last=False)
        return DataLoader(self.val, sampler=sampler, batch_size=None)


class CausalBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.mix(F.relu(self.conv(F.pad(x, (self.pad, 0)))))


class LoadForecaster(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.inlet = nn.Conv1d(len(FEATURES), cfg.channels, 1)
        self.blocks = nn.Sequential(*[CausalBlock(cfg.channels, 2 ** i) for i in range(5)])
        self.out = nn.Linear(cfg.channels, cfg.horizon)

    def forward(self, history):
        return self.out(self.blocks(self.inlet(history))[:, :, -1])

    def training_step(self, batch, batch_idx):
        history, target = batch
        loss = F.huber_loss(self(history), target)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        history, target = batch
        self.log("val_mae", F.l1_loss(self(history), target), batch_size=len(target))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.cfg.lr)


class LossCurve(Callback):
    def __init__(self):
        self.ends, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].detach())
        self.ends.append(time.perf_counter())


def main():
    start = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed, verbose=False)
    curve = LossCurve()
    with tempfile.TemporaryDirectory() as tmp:
        trainer = L.Trainer(
            accelerator="cpu", max_epochs=cfg.epochs, logger=CSVLogger(tmp), log_every_n_steps=50, callbacks=[curve],
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(LoadForecaster(cfg), datamodule=LoadData(cfg))
        print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})
    steps = [b - a for a, b in zip(curve.ends, curve.ends[1:])]
    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(steps), 5),
        "fit_s": round(time.perf_counter() - start, 2),
        "loss": round(float(torch.stack(curve.losses[-10:]).mean()), 5),
    }))


if __name__ == "__main__":
    main()
