"""Land-cover classification of multispectral patches held in an object store."""
import io
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = ["water", "forest", "crops", "urban", "bare"]


@dataclass
class Config:
    patches: int = 1300
    bands: int = 6
    size: int = 40
    batch_size: int = 20
    epochs: int = 3
    lr: float = 2e-3
    latency: float = 0.006
    num_workers: int = 4
    seed: int = 17


class PatchStore:
    """Stand-in for a bucket: one GET per key, with the round trip of a remote store."""

    def __init__(self, root, latency):
        self.root = Path(root)
        self.latency = latency

    def put(self, key, array):
        buf = io.BytesIO()
        np.save(buf, array)
        (self.root / key).write_bytes(buf.getvalue())

    def get(self, key):
        time.sleep(self.latency)
        return np.load(io.BytesIO((self.root / key).read_bytes()))


def ingest(store, cfg):
    rng = np.random.default_rng(cfg.seed)
    spectra = rng.uniform(0.1, 0.9, (len(CLASSES), cfg.bands))
    labels = rng.integers(0, len(CLASSES), cfg.patches)
    for i, label in enumerate(labels):
        other = rng.integers(0, len(CLASSES))
        frac = np.clip(np.cumsum(rng.normal(0, 0.05, cfg.size)) + 0.7, 0, 1)[:, None, None]
        patch = frac * spectra[label] + (1 - frac) * spectra[other]
        patch = patch + rng.normal(0, 0.15, (cfg.size, cfg.size, cfg.bands))
        store.put(f"patch_{i:05d}.npy", (np.clip(patch, 0, 1) * 10000).astype(np.uint16))
    return labels


class LandCover(Dataset):
    def __init__(self, store, keys, labels, train):
        self.store, self.keys, self.labels, self.train = store, keys, labels, train

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        patch = self.store.get(self.keys[i]).astype(np.float32) / 10000
        x = torch.from_numpy(patch).permute(2, 0, 1)
        if self.train and torch.rand(()) < 0.5:
            x = x.flip(2)
        return x, int(self.labels[i])


def block(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class SpectralNet(nn.Module):
    def __init__(self, bands, classes):
        super().__init__()
        self.features = nn.Sequential(block(bands, 32, 1), block(32, 64, 2), block(64, 96, 2))
        self.fc = nn.Linear(96, classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def run_validation(model, loader):
    model.eval()
    correct = n = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()
            n += y.numel()
    model.train()
    return correct / n


def main():
    t_start = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    root = tempfile.mkdtemp(prefix="bucket_")
    store = PatchStore(root, cfg.latency)
    labels = ingest(store, cfg)
    keys = [f"patch_{i:05d}.npy" for i in range(cfg.patches)]
    n_val = 160
    train_loader = DataLoader(
        LandCover(store, keys[n_val:], labels[n_val:], True), cfg.batch_size, shuffle=True,
        drop_last=True, num_workers=cfg.num_workers, persistent_workers=cfg.num_workers > 0)
    val_loader = DataLoader(LandCover(store, keys[:n_val], labels[:n_val], False), 40,
                            num_workers=cfg.num_workers)

    model = SpectralNet(cfg.bands, len(CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * len(train_loader))
    losses, times = [], []
    for epoch in range(cfg.epochs):
        t = time.perf_counter()
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            now = time.perf_counter()
            times.append(now - t)
            t = now
        acc = run_validation(model, val_loader)
        print(f"epoch {epoch}: loss {np.mean(losses[-len(train_loader):]):.4f}, val acc {acc:.3f}", flush=True)
        torch.save({"model": model.state_dict(), "epoch": epoch}, Path(root) / "checkpoint.pt")
    print("RESULT " + json.dumps({"step_s": float(np.median(times)),
                                  "fit_s": time.perf_counter() - t_start,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
