"""Fault diagnosis of pumps from one-second sound segments."""
import json
import logging
import statistics
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from scipy.io import wavfile
from scipy.signal import resample_poly
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore")


@dataclass
class Config:
    states: tuple = ("normal", "cavitation", "bearing", "leak")
    record_rate: int = 32000
    rate: int = 16000
    record_seconds: int = 10
    train_records: int = 36
    val_records: int = 8
    n_fft: int = 512
    hop: int = 160
    n_mels: int = 48
    batch_size: int = 16
    num_workers: int = 2
    epochs: int = 8
    lr: float = 1e-3
    seed: int = 7


def write_records(folder, n, cfg, seed):
    """Writes n recordings of the test bench and returns a list of (path, state)."""
    rng = np.random.default_rng(seed)
    t = np.arange(cfg.record_rate * cfg.record_seconds) / cfg.record_rate
    records = []
    for i in range(n):
        state = i % len(cfg.states)
        hum = rng.uniform(45, 55)
        x = 0.3 * np.sin(2 * np.pi * hum * t) + 0.05 * rng.standard_normal(t.size)
        x += 0.04 * np.sin(2 * np.pi * (900 * (state + 1) + rng.uniform(-150, 150)) * t) * (1 + np.sin(2 * np.pi * 3 * t))
        path = folder / f"pump_{seed}_{i:03d}.wav"
        wavfile.write(path, cfg.record_rate, (x * 20000).clip(-32767, 32767).astype(np.int16))
        records.append((path, state))
    return records


class PumpSegments(Dataset):
    def __init__(self, records, cfg):
        self.cfg = cfg
        self.records = records
        self.segments = [(r, s) for r in range(len(records)) for s in range(cfg.record_seconds)]

    def __len__(self):
        return len(self.segments)

    def load(self, path):
        rate, signal = wavfile.read(path)
        signal = signal.astype(np.float32) / 32768.0
        return resample_poly(signal, self.cfg.rate, rate)

    def __getitem__(self, idx):
        record, second = self.segments[idx]
        path, state = self.records[record]
        signal = self.load(path)
        segment = signal[second * self.cfg.rate:(second + 1) * self.cfg.rate]
        return torch.from_numpy(segment.copy()), state


def make_loader(dataset, cfg, shuffle):
    return DataLoader(dataset, batch_size=cfg.batch_size, shuffle=shuffle, drop_last=shuffle,
                      num_workers=cfg.num_workers, persistent_workers=True)


def mel_matrix(cfg):
    top = 2595 * np.log10(1 + cfg.rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, cfg.n_mels + 2) / 2595) - 1)
    freqs = np.linspace(0, cfg.rate / 2, cfg.n_fft // 2 + 1)[None]
    lo, mid, hi = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bank = np.minimum((freqs - lo) / (mid - lo), (hi - freqs) / (hi - mid)).clip(0)
    return torch.from_numpy(bank.astype(np.float32))


def conv_block(c_in, c_out):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(), nn.MaxPool2d(2))


class PumpNet(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.register_buffer("window", torch.hann_window(cfg.n_fft))
        self.register_buffer("bank", mel_matrix(cfg))
        self.net = nn.Sequential(conv_block(1, 12), conv_block(12, 24), conv_block(24, 48), conv_block(48, 64),
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(cfg.states)))
        self.val_acc = MulticlassAccuracy(len(cfg.states))

    def forward(self, sound):
        with torch.no_grad():
            spec = torch.stft(sound, self.cfg.n_fft, self.cfg.hop, window=self.window, return_complex=True)
            mel = torch.matmul(self.bank, spec.abs().square())
            mel = (mel + 1e-5).log().unsqueeze(1)
            mel = (mel - mel.mean((2, 3), keepdim=True)) / mel.std((2, 3), keepdim=True)
        return self.net(mel)

    def training_step(self, batch, batch_idx):
        sound, state = batch
        loss = F.cross_entropy(self(sound), state)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        sound, state = batch
        self.val_acc.update(self(sound), state)
        self.log("val_acc", self.val_acc)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.cfg.lr)


class StepClock(Callback):
    def __init__(self):
        self.ends, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].detach())
        self.ends.append(time.perf_counter())


def main():
    start = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed, verbose=False)
    with tempfile.TemporaryDirectory() as tmp:
        train_records = write_records(Path(tmp), cfg.train_records, cfg, seed=1)
        val_records = write_records(Path(tmp), cfg.val_records, cfg, seed=2)
        train_loader = make_loader(PumpSegments(train_records, cfg), cfg, shuffle=True)
        val_loader = make_loader(PumpSegments(val_records, cfg), cfg, shuffle=False)
        clock = StepClock()
        trainer = L.Trainer(
            accelerator="cpu", max_epochs=cfg.epochs, check_val_every_n_epoch=4, logger=CSVLogger(tmp),
            log_every_n_steps=25, callbacks=[clock], enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(PumpNet(cfg), train_loader, val_loader)
        print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})
    steps = [b - a for a, b in zip(clock.ends, clock.ends[1:])]
    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(steps), 5),
        "fit_s": round(time.perf_counter() - start, 2),
        "loss": round(float(torch.stack(clock.losses[-10:]).mean()), 5),
    }))


if __name__ == "__main__":
    main()
