"""Motor imagery from EEG windows of several sessions, Lightning."""
import json
import tempfile
import time
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset

CHANNELS, RATE, WINDOW = 22, 128, 256
SESSIONS = 6


def record_sessions(root, seconds=700, seed=5):
    rng = np.random.default_rng(seed)
    t = np.arange(seconds * RATE) / RATE
    side = rng.integers(0, 2, (SESSIONS, seconds // 2))
    for s in range(SESSIONS):
        raw = np.cumsum(rng.normal(0, 1, (CHANNELS, len(t))), axis=1) * 0.02 + rng.normal(0, 1, (CHANNELS, len(t)))
        gain = np.repeat(side[s], 2 * RATE)
        raw[:6] += (0.4 + gain) * np.sin(2 * np.pi * 11 * t)
        raw[6:12] += (1.4 - gain) * np.sin(2 * np.pi * 11 * t)
        np.savez_compressed(root / f"session{s}.npz", raw=(raw * 200).astype(np.int16), side=side[s])


class EEGWindows(Dataset):
    """Windows of two seconds; a session is opened and cleaned when it is first asked for."""

    def __init__(self, root, per_session=64):
        self.paths = sorted(Path(root).glob("session*.npz"))
        self.per_session = per_session
        self.sessions = {}

    def __len__(self):
        return len(self.paths) * self.per_session

    def session(self, s):
        if s not in self.sessions:
            with np.load(self.paths[s]) as f:
                raw, side = f["raw"].astype(np.float32), f["side"]
            raw -= raw.mean(0)
            spectrum = np.fft.rfft(raw, axis=1)
            freqs = np.fft.rfftfreq(raw.shape[1], 1 / RATE)
            raw = np.fft.irfft(spectrum * ((freqs > 4) & (freqs < 38)), raw.shape[1], axis=1)
            self.sessions[s] = (raw / raw.std(1, keepdims=True)).astype(np.float32), side
        return self.sessions[s]

    def __getitem__(self, i):
        raw, side = self.session(i // self.per_session)
        k = i % self.per_session
        return torch.from_numpy(raw[:, k * WINDOW:(k + 1) * WINDOW].copy()), int(side[k])


class ShallowNet(L.LightningModule):
    def __init__(self, maps=8, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.time = nn.Conv2d(1, maps, (1, 15), padding=(0, 7))
        self.space = nn.Conv2d(maps, maps, (CHANNELS, 1), bias=False)
        self.norm = nn.BatchNorm2d(maps)
        self.classifier = nn.Linear(maps * 14, 2)
        self.losses, self.stamps = [], []

    def forward(self, x):
        x = self.norm(self.space(self.time(x[:, None]))).square()
        x = F.avg_pool2d(x, (1, 44), (1, 16)).clamp(min=1e-6).log()
        return self.classifier(F.dropout(x.flatten(1), 0.3, self.training))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("loss", loss)
        self.losses.append(loss.detach())
        return loss

    def on_train_batch_end(self, *args):
        self.stamps.append(time.perf_counter())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def main():
    L.seed_everything(3)
    with tempfile.TemporaryDirectory() as tmp:
        record_sessions(Path(tmp))
        loader = DataLoader(EEGWindows(tmp), batch_size=32, shuffle=True, num_workers=1, prefetch_factor=4,
                            persistent_workers=True)
        model = ShallowNet()
        trainer = L.Trainer(max_epochs=7, accelerator="cpu", devices=1, logger=CSVLogger(tmp), log_every_n_steps=10,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        start = time.perf_counter()
        trainer.fit(model, loader)
        fit_s = time.perf_counter() - start
    loss = float(torch.stack(model.losses[-20:]).mean())
    print(f"steps {len(model.stamps)} loss {loss:.4f}")
    print("RESULT " + json.dumps({
        "step_s": (model.stamps[-1] - model.stamps[9]) / (len(model.stamps) - 10),
        "fit_s": fit_s,
        "loss": loss,
    }))


if __name__ == "__main__":
    main()
