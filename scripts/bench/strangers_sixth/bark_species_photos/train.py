"""Tree species from photos of bark, small residual network, Lightning."""
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
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy


@dataclass
class Config:
    n_species: int = 6
    n_train: int = 240
    n_val: int = 48
    photo_size: tuple = (800, 600)
    input_size: int = 96
    batch_size: int = 16
    epochs: int = 11
    num_workers: int = 2
    lr: float = 1e-3
    seed: int = 11


def export_photos(root: Path, cfg: Config):
    """Writes the survey's photos and the table that lists them."""
    rng = np.random.default_rng(cfg.seed)
    w, h = cfg.photo_size
    xx, yy = np.meshgrid(np.arange(w, dtype=np.float32), np.arange(h, dtype=np.float32))
    rows = []
    for i in range(cfg.n_train + cfg.n_val):
        species = i % cfg.n_species
        period = 20 + 12 * species + rng.normal(0, 2)
        tilt = rng.normal(0, 0.15)
        stripes = np.sin((xx + tilt * yy) * (2 * np.pi / period)) * 50 + 120
        grain = rng.integers(-30, 30, size=(h // 4, w // 4, 3)).repeat(4, 0).repeat(4, 1)
        tint = np.array([1.0, 0.8 + 0.03 * species, 0.6], dtype=np.float32)
        img = np.clip(stripes[..., None] * tint + grain, 0, 255).astype(np.uint8)
        name = f"bark_{i:05d}.jpg"
        Image.fromarray(img).save(root / name, quality=92)
        rows.append({"file": name, "species": species, "split": "train" if i < cfg.n_train else "val"})
    pd.DataFrame(rows).to_csv(root / "photos.csv", index=False)


class BarkPhotos(Dataset):
    mean = torch.tensor([0.47, 0.40, 0.28]).view(3, 1, 1)
    std = torch.tensor([0.16, 0.14, 0.11]).view(3, 1, 1)

    def __init__(self, root: Path, split: str, cfg: Config):
        table = pd.read_csv(root / "photos.csv")
        table = table[table["split"] == split]
        self.paths = [root / f for f in table["file"]]
        self.labels = table["species"].tolist()
        self.size = cfg.input_size
        self.augment = split == "train"

    def __len__(self):
        return len(self.paths)

    def load(self, path):
        img = Image.open(path).convert("RGB")
        img = img.resize((self.size, self.size), Image.BICUBIC)
        return torch.from_numpy(np.array(img)).permute(2, 0, 1)

    def __getitem__(self, i):
        x = self.load(self.paths[i])
        x = (x.float() / 255.0 - self.mean) / self.std
        if self.augment:
            if torch.rand(()) < 0.5:
                x = x.flip(2)
            x = x * (0.9 + 0.2 * torch.rand(()))
        return x, self.labels[i]


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


class BarkNet(L.LightningModule):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            Block(16, 32, 2), Block(32, 64, 2), Block(64, 96, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, cfg.n_species),
        )
        self.val_acc = MulticlassAccuracy(cfg.n_species)

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y, label_smoothing=0.05)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        out = self.net(x)
        self.val_acc(out, y)
        self.log("val_loss", F.cross_entropy(out, y))
        self.log("val_acc", self.val_acc)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.cfg.lr, weight_decay=1e-2)
        return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.cfg.epochs)]


class StepRecorder(Callback):
    def __init__(self):
        self.ends, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].detach())
        self.ends.append(time.perf_counter())


def main():
    start = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed, workers=True)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        export_photos(root, cfg)
        opts = dict(batch_size=cfg.batch_size, num_workers=cfg.num_workers, persistent_workers=True)
        train_dl = DataLoader(BarkPhotos(root, "train", cfg), shuffle=True, drop_last=True, **opts)
        val_dl = DataLoader(BarkPhotos(root, "val", cfg), **opts)
        rec = StepRecorder()
        ckpt = ModelCheckpoint(dirpath=root / "ckpt", monitor="val_acc", mode="max")
        trainer = L.Trainer(
            max_epochs=cfg.epochs, accelerator="cpu", devices=1, callbacks=[rec, ckpt],
            logger=CSVLogger(root, name="logs"), log_every_n_steps=10, check_val_every_n_epoch=5,
            num_sanity_val_steps=0, enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(BarkNet(cfg), train_dl, val_dl)
        print("best val_acc", float(ckpt.best_model_score))
    fit_s = time.perf_counter() - start
    loss = float(torch.stack(rec.losses[-10:]).mean())
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(rec.ends))), "fit_s": fit_s, "loss": loss}))


if __name__ == "__main__":
    main()
