"""Day-ahead load forecast for a small grid (LSTNet-like), Lightning."""
import json
import tempfile
import time

import lightning as L
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset

FEATURES = ["load", "temp", "wind", "sun", "hour_sin", "hour_cos", "dow_sin", "dow_cos", "holiday"]
TARGET = "load"


def load_history(hours=24 * 500, seed=4):
    rng = np.random.default_rng(seed)
    index = pd.date_range("2021-01-01", periods=hours, freq="h")
    t = np.arange(hours)
    temp = 10 - 9 * np.cos(2 * np.pi * t / 8766) + 4 * np.sin(2 * np.pi * t / 24) + rng.normal(0, 1.5, hours)
    wind = np.abs(np.convolve(rng.normal(0, 3, hours), np.ones(9) / 3, "same"))
    sun = np.clip(np.sin(2 * np.pi * (t - 6) / 24), 0, None) * rng.uniform(0.3, 1, hours)
    holiday = np.repeat(rng.random(hours // 24 + 1) < 0.04, 24)[:hours]
    load = 50 + 8 * np.sin(2 * np.pi * (t - 8) / 24) - 6 * (index.day_of_week >= 5) - 9 * holiday
    load = load + 0.12 * (temp - 16) ** 2 - 3 * sun + 0.2 * wind + rng.normal(0, 1, hours)
    df = pd.DataFrame({
        "load": load, "temp": temp, "wind": wind, "sun": sun,
        "hour_sin": np.sin(2 * np.pi * index.hour / 24), "hour_cos": np.cos(2 * np.pi * index.hour / 24),
        "dow_sin": np.sin(2 * np.pi * index.day_of_week / 7), "dow_cos": np.cos(2 * np.pi * index.day_of_week / 7),
        "holiday": holiday.astype(float),
    }, index=index).astype("float32")
    numeric = ["load", "temp", "wind", "sun"]
    df[numeric] = (df[numeric] - df[numeric].mean()) / df[numeric].std()
    return df


class LoadWindows(Dataset):
    def __init__(self, df, history=168, horizon=24, stride=4):
        self.past = torch.from_numpy(df[FEATURES].to_numpy(copy=True))
        self.known = torch.from_numpy(df[FEATURES[1:]].to_numpy(copy=True))
        self.target = torch.from_numpy(df[TARGET].to_numpy(copy=True))
        self.history, self.horizon = history, horizon
        self.starts = list(range(0, len(df) - history - horizon, stride))

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        a = self.starts[i]
        b, c = a + self.history, a + self.history + self.horizon
        return self.past[a:b], self.known[b:c], self.target[b:c]


class LoadData(L.LightningDataModule):
    def __init__(self, batch_size=64):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        df = load_history()
        cut = int(len(df) * 0.9)
        self.train, self.val = LoadWindows(df.iloc[:cut]), LoadWindows(df.iloc[cut:], stride=24)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.batch_size)


class LSTNet(L.LightningModule):
    def __init__(self, features, known, hidden=96, horizon=24, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.conv = nn.Conv1d(features, hidden, 6, stride=4)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.future = nn.Linear(known * horizon, hidden)
        self.head = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.GELU(), nn.Linear(hidden, horizon))
        self.highway = nn.Linear(24, 1)
        self.horizon = horizon
        self.curve, self.clock = [], []

    def forward(self, past, known):
        h = F.relu(self.conv(past.transpose(1, 2))).transpose(1, 2)
        _, last = self.gru(h)
        joint = torch.cat([last[0], F.gelu(self.future(known.flatten(1)))], 1)
        days = past[:, :, 0].view(len(past), -1, 24)[:, -7:]
        return self.head(joint) + days.mean(1) + self.highway(days[:, -1])

    def training_step(self, batch, _):
        past, known, target = batch
        loss = F.smooth_l1_loss(self(past, known), target)
        self.log("train_loss", loss)
        self.curve.append(loss.detach())
        return loss

    def validation_step(self, batch, _):
        past, known, target = batch
        self.log("val_mae", F.l1_loss(self(past, known), target), prog_bar=True)

    def on_train_epoch_start(self):
        self.tick = time.perf_counter()

    def on_train_batch_end(self, *_):
        now = time.perf_counter()
        self.clock.append(now - self.tick)
        self.tick = now

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr, fused=True)


def main():
    L.seed_everything(2024, workers=True)
    data = LoadData()
    model = LSTNet(len(FEATURES), len(FEATURES) - 1)
    with tempfile.TemporaryDirectory() as tmp:
        trainer = L.Trainer(
            max_epochs=2, accelerator="cpu", devices=1, logger=CSVLogger(tmp), log_every_n_steps=25,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        start = time.perf_counter()
        trainer.fit(model, data)
        fit_s = time.perf_counter() - start
    print("val_mae", float(trainer.callback_metrics["val_mae"]))
    steady = model.clock[10:]
    print("RESULT " + json.dumps({
        "step_s": sum(steady) / len(steady),
        "fit_s": fit_s,
        "loss": torch.stack(model.curve[-50:]).mean().item(),
    }))


if __name__ == "__main__":
    main()
