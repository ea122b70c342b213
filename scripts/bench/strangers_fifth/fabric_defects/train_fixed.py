"""Linear probe for fabric defect detection.

A convolutional backbone (trained elsewhere, loaded from ``backbone.pt``) gives the features and
a light head is trained on them with random flips and brightness jitter.
"""
import json
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


@dataclass
class TrainConfig:
    images: int = 1200
    size: int = 64
    classes: int = 5
    batch_size: int = 24
    epochs: int = 4
    lr: float = 3e-3
    weight_decay: float = 1e-4
    seed: int = 21


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class Backbone(nn.Module):
    out_channels = 192

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            conv_bn(1, 32), conv_bn(32, 32), conv_bn(32, 64, 2), conv_bn(64, 64),
            conv_bn(64, 128, 2), conv_bn(128, 128), conv_bn(128, self.out_channels, 2))

    def forward(self, x):
        return self.layers(x)


class DefectClassifier(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(
            nn.Linear(2 * backbone.out_channels, 128), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(128, classes))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        f = self.backbone(x)
        f = torch.cat([f.mean((2, 3)), f.amax((2, 3))], 1)
        return self.head(f)


def make_fabric(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    yy, xx = torch.meshgrid(torch.arange(cfg.size), torch.arange(cfg.size), indexing="ij")
    weave = 0.5 + 0.2 * torch.sin(xx * 1.3) * torch.sin(yy * 1.3)
    x = weave.expand(cfg.images, 1, -1, -1) + 0.08 * torch.randn(cfg.images, 1, cfg.size, cfg.size, generator=g)
    y = torch.randint(0, cfg.classes, (cfg.images,), generator=g)
    x = x.clone()
    for i, label in enumerate(y.tolist()):
        r, c = torch.randint(8, cfg.size - 20, (2,), generator=g).tolist()
        if label == 1:
            x[i, 0, r:r + 3, :] -= 0.4
        elif label == 2:
            x[i, 0, :, c:c + 3] -= 0.4
        elif label == 3:
            x[i, 0, r:r + 10, c:c + 10] += 0.4
        elif label == 4:
            x[i, 0, r:r + 10, c:c + 10] = 0.0
    return x, y


def load_backbone(path):
    backbone = Backbone()
    backbone.load_state_dict(torch.load(path))
    return backbone


def export_backbone(path):
    torch.manual_seed(1234)
    torch.save(Backbone().state_dict(), path)


def augment(x):
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    if torch.rand(()) < 0.5:
        x = x.flip(-2)
    return x * (0.9 + 0.2 * torch.rand(len(x), 1, 1, 1))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    t_main = time.perf_counter()
    cfg = TrainConfig()
    work = tempfile.mkdtemp(prefix="fabric_")
    export_backbone(os.path.join(work, "backbone.pt"))
    torch.manual_seed(cfg.seed)
    dataset = TensorDataset(*make_fabric(cfg))
    n_val = len(dataset) // 6
    train_set, val_set = random_split(dataset, [len(dataset) - n_val, n_val])
    train_loader = DataLoader(train_set, cfg.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, 50)

    model = DefectClassifier(load_backbone(os.path.join(work, "backbone.pt")), cfg.classes)
    model.backbone.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    losses, durations = [], []
    model.train()
    for epoch in range(cfg.epochs):
        t = time.perf_counter()
        for images, labels in train_loader:
            logits = model(augment(images))
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            durations.append(time.perf_counter() - t)
            t = time.perf_counter()
        print(f"epoch {epoch + 1}/{cfg.epochs} loss {np.mean(losses[-len(train_loader):]):.4f} "
              f"val acc {accuracy(model, val_loader):.3f}", flush=True)
        torch.save(model.head.state_dict(), os.path.join(work, "head.pt"))
    print("RESULT " + json.dumps({"step_s": float(np.median(durations)),
                                  "fit_s": time.perf_counter() - t_main,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
