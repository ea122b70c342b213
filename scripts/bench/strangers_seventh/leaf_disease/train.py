"""Classify leaf photographs into disease categories with a small residual network."""
import json
import os
import random
import shutil
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

CLASSES = ["healthy", "rust", "blight", "mildew", "mosaic", "scab"]


@dataclass
class Config:
    num_train: int = 240
    num_val: int = 48
    photo_size: tuple = (960, 720)
    resize: int = 144
    crop: int = 128
    batch_size: int = 16
    epochs: int = 11
    val_every: int = 4
    workers: int = 2
    lr: float = 0.02
    weight_decay: float = 5e-4
    log_every: int = 20
    seed: int = 7


def make_photo(label, size, rng):
    width, height = size
    base = np.zeros((12, 16, 3), dtype=np.float32)
    base[..., 1] = 120 + 25 * rng.standard_normal((12, 16))
    base[..., 0] = 60 + 18 * label + 12 * rng.standard_normal((12, 16))
    base[..., 2] = 50 + 10 * rng.standard_normal((12, 16))
    spots = rng.random((12, 16)) < 0.05 * label
    base[spots] = [150 - 15 * label, 110, 40 + 12 * label]
    photo = Image.fromarray(base.clip(0, 255).astype(np.uint8)).resize((width, height), Image.BICUBIC)
    grain = rng.integers(0, 14, (height, width, 1), dtype=np.uint8)
    return Image.fromarray(np.minimum(np.asarray(photo), 241) + grain)


def export_photos(folder, count, cfg, rng):
    os.makedirs(folder)
    records = []
    for i in range(count):
        label = i % len(CLASSES)
        path = os.path.join(folder, f"leaf_{i:04d}.jpg")
        make_photo(label, cfg.photo_size, rng).save(path, quality=90)
        records.append((path, label))
    return records


class LeafPhotos(Dataset):
    def __init__(self, records, cfg, train):
        self.records = records
        self.cfg = cfg
        self.train = train

    def __len__(self):
        return len(self.records)

    def load(self, path):
        image = Image.open(path).convert("RGB")
        image = image.resize((self.cfg.resize, self.cfg.resize), Image.BILINEAR)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    def __getitem__(self, index):
        path, label = self.records[index]
        image = self.load(path)
        room = self.cfg.resize - self.cfg.crop
        if self.train:
            top, left = torch.randint(0, room + 1, (2,)).tolist()
        else:
            top = left = room // 2
        image = image[:, top:top + self.cfg.crop, left:left + self.cfg.crop]
        if self.train and torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image.float().div(255).sub(0.45).div(0.25), label


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


class LeafNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(Block(16, 24, 2), Block(24, 48, 2), Block(48, 96, 2))
        self.head = nn.Linear(96, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = total = 0
    for images, labels in loader:
        correct += (model(images).argmax(1) == labels).sum().item()
        total += len(labels)
    model.train()
    return correct / total


def main():
    start = time.perf_counter()
    cfg = Config()
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    root = tempfile.mkdtemp(prefix="leaves_")
    train_records = export_photos(os.path.join(root, "train"), cfg.num_train, cfg, rng)
    val_records = export_photos(os.path.join(root, "val"), cfg.num_val, cfg, rng)
    print(f"photos written to {root}: {len(train_records)} train, {len(val_records)} val")

    train_loader = DataLoader(LeafPhotos(train_records, cfg, True), batch_size=cfg.batch_size, shuffle=True,
                              num_workers=cfg.workers, persistent_workers=True, drop_last=True)
    val_loader = DataLoader(LeafPhotos(val_records, cfg, False), batch_size=cfg.batch_size)

    model = LeafNet(len(CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=cfg.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * len(train_loader))

    losses, ends = [], []
    for epoch in range(cfg.epochs):
        for images, labels in train_loader:
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            ends.append(time.perf_counter())
            if len(losses) % cfg.log_every == 0:
                print(f"epoch {epoch} step {len(losses)} loss {np.mean(losses[-cfg.log_every:]):.4f}")
        if (epoch + 1) % cfg.val_every == 0:
            print(f"epoch {epoch} val accuracy {evaluate(model, val_loader):.3f}")
    torch.save(model.state_dict(), os.path.join(root, "leafnet.pt"))
    shutil.rmtree(root)
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(ends))),
                                  "fit_s": time.perf_counter() - start,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
