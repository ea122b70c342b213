"""Train a disease classifier for leaf photographs on top of a fixed, self-supervised backbone."""
import json
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    image_size: int = 32
    n_classes: int = 6
    n_train: int = 1600
    n_val: int = 320
    widths: tuple = (16, 32, 64)
    head_hidden: int = 128
    batch_size: int = 24
    epochs: int = 3
    lr: float = 2e-3
    weight_decay: float = 1e-4
    log_every: int = 50
    seed: int = 11


class ResidualBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False) if stride != 1 or c_in != c_out else nn.Identity()

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class Backbone(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        blocks, c = [], widths[0]
        for i, w in enumerate(widths):
            blocks += [ResidualBlock(c, w, 1 if i == 0 else 2), ResidualBlock(w, w, 1)]
            c = w
        self.blocks = nn.Sequential(*blocks)
        self.out_features = c

    def forward(self, x):
        return self.blocks(self.stem(x)).mean(dim=(2, 3))


class LeafClassifier(nn.Module):
    def __init__(self, backbone, cfg):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(
            nn.LayerNorm(backbone.out_features),
            nn.Linear(backbone.out_features, cfg.head_hidden),
            nn.ReLU(),
            nn.Linear(cfg.head_hidden, cfg.n_classes),
        )

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, images):
        features = self.backbone(images)
        return self.head(features)


class LeafImages(Dataset):
    def __init__(self, n, cfg, seed, augment):
        rng = np.random.default_rng(seed)
        self.labels = torch.from_numpy(rng.integers(0, cfg.n_classes, n))
        yy, xx = np.mgrid[0:cfg.image_size, 0:cfg.image_size] / cfg.image_size
        images = np.empty((n, 3, cfg.image_size, cfg.image_size), dtype=np.uint8)
        for i, k in enumerate(self.labels.tolist()):
            spots = np.sin(2 * np.pi * (k + 2) * xx + rng.uniform(0, 6)) * np.sin(2 * np.pi * (k + 1) * yy)
            base = np.stack([0.3 + 0.2 * spots, 0.5 - 0.1 * spots, 0.25 + 0.0 * spots])
            images[i] = (np.clip(base + rng.normal(0, 0.12, base.shape), 0, 1) * 255).astype(np.uint8)
        self.images = torch.from_numpy(images)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i].float() / 255.0
        if self.augment:
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
            image = image * (0.8 + 0.4 * torch.rand(()))
        return (image - 0.4) / 0.2, self.labels[i]


def load_pretrained(path, cfg):
    backbone = Backbone(cfg.widths)
    backbone.load_state_dict(torch.load(path))
    return backbone


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return correct / len(loader.dataset)


def main():
    t0 = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    with tempfile.TemporaryDirectory() as tmp:
        weights = os.path.join(tmp, "backbone.pt")
        torch.save(Backbone(cfg.widths).state_dict(), weights)
        backbone = load_pretrained(weights, cfg)
    model = LeafClassifier(backbone, cfg)
    train_loader = DataLoader(LeafImages(cfg.n_train, cfg, cfg.seed, True), batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(LeafImages(cfg.n_val, cfg, cfg.seed + 1, False), batch_size=64)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)

    losses, ends, step = [], [], 0
    model.train()
    for epoch in range(cfg.epochs):
        for images, labels in train_loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
            ends.append(time.perf_counter())
            if step % cfg.log_every == 0:
                print(f"epoch {epoch} step {step} loss {np.mean(losses[-cfg.log_every:]):.4f}", flush=True)
        print(f"epoch {epoch} val accuracy {evaluate(model, val_loader):.3f}", flush=True)

    print("RESULT " + json.dumps({
        "step_s": float(np.median(np.diff(ends))),
        "fit_s": time.perf_counter() - t0,
        "loss": float(np.mean(losses[-10:])),
    }))


if __name__ == "__main__":
    main()
