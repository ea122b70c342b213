"""Hand gestures from a glove with flex sensors. The recordings lie in an SQLite file, one blob each."""
import argparse
import json
import os
import sqlite3
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

SENSORS, GESTURES = 14, 12


def fill_database(path, recordings, seed):
    rng = np.random.default_rng(seed)
    prototypes = rng.standard_normal((GESTURES, SENSORS, 4)).astype(np.float32)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE recording (id INTEGER PRIMARY KEY, gesture INTEGER, frames INTEGER, data BLOB)")
    for i in range(recordings):
        gesture = int(rng.integers(GESTURES))
        frames = int(rng.integers(60, 140))
        t = np.linspace(0, np.pi, frames, dtype=np.float32)
        basis = np.stack([np.sin((k + 1) * t) for k in range(4)])
        wave = prototypes[gesture] @ basis + 2.5 * rng.standard_normal((SENSORS, frames))
        db.execute("INSERT INTO recording VALUES (?, ?, ?, ?)", (i, gesture, frames, wave.astype(np.float32).tobytes()))
    db.commit()
    db.close()


class GestureDatabase(Dataset):
    """Reads a recording when asked and brings it to a common number of frames."""

    def __init__(self, path, frames=96):
        self.path, self.frames = path, frames
        self.db = None
        with sqlite3.connect(path) as db:
            self.count = db.execute("SELECT COUNT(*) FROM recording").fetchone()[0]

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if self.db is None:  # one connection per process
            self.db = sqlite3.connect(self.path)
        gesture, frames, data = self.db.execute(
            "SELECT gesture, frames, data FROM recording WHERE id = ?", (int(i),)
        ).fetchone()
        wave = np.frombuffer(data, dtype=np.float32).reshape(SENSORS, frames)
        pick = np.linspace(0, frames - 1, self.frames).round().astype(int)
        return torch.from_numpy(wave[:, pick].copy()), gesture


class GestureNet(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(SENSORS, hidden, 5, padding=2), nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, stride=2, padding=2), nn.ReLU(),
        )
        self.gru = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, GESTURES)

    def forward(self, x):
        h, _ = self.gru(self.conv(x).transpose(1, 2))
        return self.out(h.mean(dim=1))


def get_loader(dataset, cfg):
    order = RandomSampler(dataset, generator=torch.Generator().manual_seed(cfg.seed))
    # sqlite connections must not be carried over a fork
    return DataLoader(
        dataset,
        batch_size=cfg.batch_size,
        sampler=order,
        num_workers=cfg.num_workers,
        multiprocessing_context="spawn" if cfg.num_workers else None,
        prefetch_factor=4 if cfg.num_workers else None,
        drop_last=True,
    )


def train(cfg, path):
    torch.manual_seed(cfg.seed)
    loader = get_loader(GestureDatabase(path), cfg)
    model = GestureNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    loss_fn = nn.CrossEntropyLoss()
    losses, stamps = [], []
    t_begin = time.perf_counter()
    for epoch in range(cfg.epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
            losses.append(loss.item())
            stamps.append(time.perf_counter())
        print(f"Epoch {epoch + 1:2d}: loss = {total / len(loader):.4f}", flush=True)
    return {
        "step_s": (stamps[-1] - stamps[0]) / (len(stamps) - 1),
        "fit_s": time.perf_counter() - t_begin,
        "loss": sum(losses[-8:]) / 8,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=640)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=7)
    cfg = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "glove.sqlite")
        fill_database(path, cfg.recordings, cfg.seed)
        print("RESULT " + json.dumps(train(cfg, path)), flush=True)
