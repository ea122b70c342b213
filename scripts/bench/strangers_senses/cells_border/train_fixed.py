"""Instance-aware cell segmentation (small U-Net), Lightning."""
import json
import tempfile
import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset

SIZE = 96


def make_plate(n, seed=3):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIZE, :SIZE]
    images = np.zeros((n, SIZE, SIZE), np.float32)
    labels = np.zeros((n, SIZE, SIZE), np.int16)
    for k in range(n):
        for cell in range(1, int(rng.integers(18, 27))):
            cy, cx = rng.uniform(6, SIZE - 6, 2)
            ry, rx = rng.uniform(4, 9, 2)
            disc = ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2
            labels[k][disc < 1] = cell
            images[k] += np.exp(-disc) * rng.uniform(0.5, 1.2)
    images += rng.normal(0, 0.12, images.shape).astype(np.float32)
    return images, labels


class CellDataset(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, label = self.images[i], self.labels[i]
        k = int(torch.randint(4, ()))
        image, label = np.rot90(image, k).copy(), np.rot90(label, k).copy()
        return {
            "image": torch.from_numpy(image)[None],
            "inside": torch.from_numpy((label > 0).astype(np.float32))[None],
            "index": i,
        }


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class CellSegmenter(L.LightningModule):
    def __init__(self, width=8, lr=2e-3):
        super().__init__()
        self.lr = lr
        self.stem = nn.Conv2d(1, width, 4, stride=2, padding=1)
        self.d1, self.d2, self.mid = block(width, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.u2, self.u1 = block(6 * width, 2 * width), block(3 * width, width)
        self.out = nn.ConvTranspose2d(width, 1, 2, stride=2)
        self.losses, self.stamps = [], []

    def forward(self, x):
        a = self.d1(self.stem(x))
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.out(a)

    def training_step(self, batch, batch_idx):
        logits = self(batch["image"])
        bce = F.binary_cross_entropy_with_logits(logits, batch["inside"])
        p = logits.sigmoid()
        dice = 1 - (2 * (p * batch["inside"]).sum() + 1) / (p.sum() + batch["inside"].sum() + 1)
        loss = bce + dice
        self.log("loss", loss)
        self.losses.append(loss.detach())
        return loss

    def on_train_batch_end(self, *args):
        self.stamps.append(time.perf_counter())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main():
    L.seed_everything(1)
    dataset = CellDataset(*make_plate(176))
    loader = DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)
    model = CellSegmenter()
    with tempfile.TemporaryDirectory() as tmp:
        trainer = L.Trainer(max_epochs=3, accelerator="cpu", devices=1, logger=CSVLogger(tmp), log_every_n_steps=20,
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
