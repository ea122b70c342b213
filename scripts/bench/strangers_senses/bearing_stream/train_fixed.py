"""Bearing fault diagnosis from vibration recordings, streamed from disk."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RATE = 12_000
CLASSES = 4


def record(root, minutes, seed=0):
    """A rig that stores twenty seconds of vibration every four minutes; one fault per recording."""
    rng = np.random.default_rng(seed)
    t = np.arange(RATE * 20) / RATE
    for minute in range(0, minutes, 4):
        fault = int(rng.integers(CLASSES))
        speed = rng.uniform(24, 31)
        wave = np.sin(2 * np.pi * speed * t) + 0.6 * rng.standard_normal(len(t))
        if fault:
            hits = (t * speed * (2.1 + fault)) % 1.0
            wave += 1.6 * np.exp(-hits * 9) * np.sin(2 * np.pi * (1500 + 700 * fault) * t)
        np.savez(root / f"rig2_{minute:04d}.npz", wave=wave.astype(np.float32), fault=fault)


class VibrationStream(IterableDataset):
    def __init__(self, root, window=4096, hop=1536, scales=32, seed=0):
        self.paths = sorted(Path(root).glob("rig2_*.npz"))
        self.window, self.hop, self.seed, self.epoch = window, hop, seed, 0
        freqs = np.fft.rfftfreq(window, 1 / RATE)
        centres = np.geomspace(60, 5000, scales)[:, None]
        self.bank = np.exp(-0.5 * ((freqs - centres) / (0.12 * centres)) ** 2).astype(np.float32)

    def scalogram(self, x):
        spectrum = np.fft.rfft(x * np.hanning(len(x)))
        bands = np.abs(np.fft.irfft(spectrum * self.bank, axis=1))
        return np.log1p(bands.reshape(len(self.bank), 64, -1).mean(2)).astype(np.float32)

    def __iter__(self):
        info = get_worker_info()
        paths = self.paths
        if info is not None:
            paths = paths[info.id::info.num_workers]
        rng = np.random.default_rng(self.seed + self.epoch)
        self.epoch += 1
        for i in rng.permutation(len(paths)):
            with np.load(paths[i]) as rec:
                wave, fault = rec["wave"], int(rec["fault"])
            starts = np.arange(0, len(wave) - self.window, self.hop)
            for s in rng.permutation(starts):
                yield torch.from_numpy(self.scalogram(wave[s:s + self.window])), fault


class ScaleNet(nn.Module):
    def __init__(self, scales=32, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(scales, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(width, width * 2, 3, padding=1), nn.BatchNorm1d(width * 2), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(width * 2, width * 2, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Linear(width * 2, CLASSES),
        )

    def forward(self, x):
        return self.net(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--minutes", type=int, default=88)
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        record(Path(tmp), args.minutes)
        loader = DataLoader(VibrationStream(tmp), batch_size=args.batch_size, num_workers=args.workers,
                            persistent_workers=True, prefetch_factor=4, drop_last=True)
        model = ScaleNet()
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        losses, stamps = [], []
        start = time.perf_counter()
        for epoch in range(args.epochs):
            for x, y in loader:
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                stamps.append(time.perf_counter())
            print(f"epoch {epoch} steps {len(losses)} loss {sum(losses[-20:]) / 20:.4f}", flush=True)
        fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-20:]) / 20,
    }))


if __name__ == "__main__":
    main()
