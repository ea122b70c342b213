"""Crowd counting by density maps (CSRNet in the small), Lightning."""
import json
import logging
import sys
import tempfile
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)

CONFIG = {
    "data": {"size": 48, "train": 512, "val": 200, "test_seed": 3, "max_people": 24},
    "loader": {"batch_size": 32},
    "model": {"front": (16, 32), "back": (32, 32, 16), "dilation": 2},
    "optim": {"lr": 1e-3, "weight_decay": 1e-4},
    "trainer": {"max_epochs": 5},
    "seed": 12,
}


class CrowdScenes(Dataset):
    """Small heads over ground texture; the target is a density map at a quarter of the size."""

    def __init__(self, n, size, max_people, seed):
        g = torch.Generator().manual_seed(seed)
        ax = torch.arange(size, dtype=torch.float32)
        yy, xx = torch.meshgrid(ax, ax, indexing="ij")
        self.images = 0.25 * torch.rand(n, 3, size // 8, size // 8, generator=g)
        self.images = F.interpolate(self.images, size=(size, size), mode="bilinear")
        density = torch.zeros(n, size, size)
        count = torch.randint(max_people + 1, (n,), generator=g)
        for k in range(max_people):
            present = (k < count).float()[:, None, None]
            cy, cx = torch.rand(2, n, 1, 1, generator=g) * size
            scale = 0.6 + 1.2 * cy / size
            d2 = (xx - cx) ** 2 + (yy - cy) ** 2
            tone = torch.rand(n, 3, 1, 1, generator=g)
            self.images += (present * torch.exp(-d2 / (2 * scale ** 2)))[:, None] * tone
            bump = torch.exp(-d2 / 8)
            density += present * bump / bump.sum((1, 2), keepdim=True)
        self.images += 0.03 * torch.randn(self.images.shape, generator=g)
        self.density = F.avg_pool2d(density[:, None], 4) * 16
        self.count = count.float()

    def __len__(self):
        return len(self.count)

    def __getitem__(self, i):
        return self.images[i], self.density[i], self.count[i]


class CrowdData(L.LightningDataModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage=None):
        d = self.cfg["data"]
        self.train_set = CrowdScenes(d["train"], d["size"], d["max_people"], d["test_seed"])
        self.val_set = CrowdScenes(d["val"], d["size"], d["max_people"], d["test_seed"] + 1)

    def train_dataloader(self):
        return DataLoader(self.train_set, shuffle=True, drop_last=True, **self.cfg["loader"])

    def val_dataloader(self):
        return DataLoader(self.val_set, shuffle=False, **self.cfg["loader"])


def conv(cin, cout, dilation=1):
    return [nn.Conv2d(cin, cout, 3, padding=dilation, dilation=dilation), nn.ReLU(inplace=True)]


class CSRNetSmall(nn.Module):
    def __init__(self, front, back, dilation):
        super().__init__()
        layers, cin = [], 3
        for w in front:
            layers += conv(cin, w) + conv(w, w) + [nn.MaxPool2d(2)]
            cin = w
        for w in back:
            layers += conv(cin, w, dilation)
            cin = w
        self.net = nn.Sequential(*layers, nn.Conv2d(cin, 1, 1))
        for m in self.net:
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
                nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.net(x)


class Counter(L.LightningModule):
    SCALE = 10.0

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.net = CSRNetSmall(**cfg["model"])
        self.history, self.durations = [], []

    def training_step(self, batch, _):
        image, density, _count = batch
        loss = F.mse_loss(self.net(image), density * self.SCALE)
        self.log("loss", loss)
        self.history.append(loss.detach())
        return loss

    def validation_step(self, batch, _):
        image, density, count = batch
        predicted = self.net(image)
        total = predicted.sum((1, 2, 3)) / self.SCALE
        self.log_dict({
            "val_loss": F.mse_loss(predicted, density * self.SCALE),
            "val_mae": (total - count).abs().mean(),
        })

    def on_train_epoch_start(self):
        self._mark = time.perf_counter()

    def on_train_batch_end(self, *_):
        now = time.perf_counter()
        self.durations.append(now - self._mark)
        self._mark = now

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), fused=True, **self.cfg["optim"])


def main():
    L.seed_everything(CONFIG["seed"])
    model, data = Counter(CONFIG), CrowdData(CONFIG)
    with tempfile.TemporaryDirectory() as tmp:
        trainer = L.Trainer(
            accelerator="cpu", devices=1, logger=CSVLogger(tmp), log_every_n_steps=12,
            callbacks=[ModelCheckpoint(dirpath=tmp, monitor="val_mae", save_top_k=1)],
            enable_progress_bar=False, enable_model_summary=False, **CONFIG["trainer"],
        )
        start = time.perf_counter()
        trainer.fit(model, datamodule=data)
        fit_s = time.perf_counter() - start
    print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()}, file=sys.stderr)
    steady = model.durations[10:]
    print("RESULT " + json.dumps({
        "step_s": sum(steady) / len(steady),
        "fit_s": fit_s,
        "loss": torch.stack(model.history[-24:]).mean().item(),
    }))


if __name__ == "__main__":
    main()
