"""Galaxy morphology from r-band cutouts: a small residual network on survey stamps."""
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ["elliptical", "spiral", "lenticular", "irregular"]


@dataclass
class Config:
    n_train: int = 2240
    n_val: int = 360
    stamp: int = 32
    width: int = 16
    batch_size: int = 32
    epochs: int = 3
    lr: float = 2e-3
    weight_decay: float = 1e-4
    log_every: int = 35
    seed: int = 11


def render_stamps(n, size, rng):
    """Draws noisy surface brightness profiles, one label per stamp."""
    labels = rng.integers(0, len(CLASSES), n)
    yy, xx = np.mgrid[0:size, 0:size] - (size - 1) / 2
    q = rng.uniform(0.45, 1.0, (n, 1, 1))
    pa = rng.uniform(0, np.pi, (n, 1, 1))
    scale = rng.uniform(3.0, 6.0, (n, 1, 1))
    u = xx * np.cos(pa) + yy * np.sin(pa)
    v = (-xx * np.sin(pa) + yy * np.cos(pa)) / q
    r = np.sqrt(u ** 2 + v ** 2) + 1e-3
    theta = np.arctan2(v, u)
    kind = labels[:, None, None]
    sersic = np.where(kind == 0, 0.5, 1.0)
    img = np.exp(-((r / scale) ** sersic))
    img = np.where(kind == 1, img * (1 + 0.6 * np.cos(2 * theta + r / 2)), img)
    img = np.where(kind == 3, img * (1 + 0.8 * rng.normal(size=(n, 1, 1)) * np.sin(theta)), img)
    img = img + rng.normal(0, 0.08, img.shape)
    return (np.clip(img, 0, 1.5) / 1.5 * 255).astype(np.uint8), labels.astype(np.int64)


def build_archives(cfg, root):
    rng = np.random.default_rng(cfg.seed)
    for name, n in (("train", cfg.n_train), ("val", cfg.n_val)):
        stamps, labels = render_stamps(n, cfg.stamp, rng)
        np.savez(root / f"{name}.npz", stamps=stamps, labels=labels)


class GalaxyStamps(Dataset):
    def __init__(self, path, augment):
        self.catalogue = np.load(path)
        self.size = len(self.catalogue["labels"])
        self.augment = augment

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        stamp = torch.from_numpy(self.catalogue["stamps"][index].astype(np.float32))
        stamp = (stamp / 255.0 - 0.25) / 0.25
        if self.augment:
            stamp = torch.rot90(stamp, int(torch.randint(0, 4, ())), (0, 1))
        return stamp.unsqueeze(0), int(self.catalogue["labels"][index])


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False) if stride != 1 or cin != cout else nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x), inplace=True)


class MorphologyNet(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            Block(width, width, 1),
            Block(width, 2 * width, 2),
            Block(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    hits = seen = 0
    for stamps, labels in loader:
        hits += (model(stamps).argmax(1) == labels).sum().item()
        seen += labels.numel()
    model.train()
    return hits / seen


def main():
    begin = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    with tempfile.TemporaryDirectory(prefix="galaxies_") as tmp:
        root = Path(tmp)
        build_archives(cfg, root)
        train_loader = DataLoader(GalaxyStamps(root / "train.npz", True), cfg.batch_size, shuffle=True, drop_last=True)
        val_loader = DataLoader(GalaxyStamps(root / "val.npz", False), 120)

        model = MorphologyNet(cfg.width, len(CLASSES))
        optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.epochs * len(train_loader))

        losses, durations, step = [], [], 0
        mark = time.perf_counter()
        for epoch in range(cfg.epochs):
            for stamps, labels in train_loader:
                loss = F.cross_entropy(model(stamps), labels, label_smoothing=0.05)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                step += 1
                if step % cfg.log_every == 0:
                    print(f"epoch {epoch} step {step} loss {statistics.fmean(losses[-cfg.log_every:]):.4f}")
                now = time.perf_counter()
                durations.append(now - mark)
                mark = now
            print(f"epoch {epoch} val accuracy {evaluate(model, val_loader):.4f}")
        torch.save(model.state_dict(), root / "morphology.pt")

    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(durations), 5),
        "fit_s": round(time.perf_counter() - begin, 2),
        "loss": round(statistics.fmean(losses[-10:]), 5),
    }))


if __name__ == "__main__":
    main()
