"""Plankton species from microscope images; any orientation is as good as another, so images are rotated."""
import argparse
import json
import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset

SPECIES = 8


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=1024)
    p.add_argument("--size", type=int, default=96)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=6)
    return p.parse_args()


class Plankton(Dataset):
    """Grey images in memory, turned by a random angle each time they are drawn."""

    def __init__(self, n, size, seed):
        rng = np.random.default_rng(seed)
        self.label = rng.integers(SPECIES, size=n)
        axis = np.linspace(-1, 1, size, dtype=np.float32)
        yy, xx = np.meshgrid(axis, axis, indexing="ij")
        theta, r = np.arctan2(yy, xx), np.hypot(xx, yy)
        self.images = np.empty((n, size, size), np.float32)
        for i, k in enumerate(self.label):
            edge = 0.45 + 0.12 * rng.random() + 0.2 * np.cos((k + 1) * theta)
            self.images[i] = (r < edge) * (0.6 + 0.3 * np.sin(12 * r))
        self.images += 0.1 * rng.standard_normal(self.images.shape, dtype=np.float32)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        angle = np.random.uniform(0, 360)
        image = ndimage.rotate(self.images[i], angle, reshape=False, mode="nearest")
        return torch.from_numpy(image).unsqueeze(0), int(self.label[i])


class PlanktonNet(L.LightningModule):
    def __init__(self, lr, width=8):
        super().__init__()
        self.lr = lr

        def block(cin, cout):
            return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout),
                                 nn.ReLU(inplace=True), nn.MaxPool2d(2))

        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.ReLU(inplace=True),
            block(width, 2 * width), block(2 * width, 4 * width), block(4 * width, 4 * width),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, SPECIES),
        )

    def training_step(self, batch, _):
        image, label = batch
        loss = F.cross_entropy(self.net(image), label)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, fused=True)


class Stopwatch(L.Callback):
    def __init__(self):
        self.stamps, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())
        self.stamps.append(time.perf_counter())


def main():
    args = get_args()
    L.seed_everything(args.seed)
    dataset = Plankton(args.images, args.size, args.seed)
    loader = DataLoader(dataset, batch_size=args.batch, shuffle=True, drop_last=True)
    watch = Stopwatch()
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[watch],
    )
    model = PlanktonNet(args.lr)
    start = time.perf_counter()
    trainer.fit(model, loader)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (watch.stamps[-1] - watch.stamps[9]) / (len(watch.stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(watch.losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
