"""Fine-tuning of the reef patch classifier on a new survey site."""
import json
import logging
import statistics
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler
from torchmetrics.classification import MulticlassAccuracy

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore")


@dataclass
class Config:
    num_classes: int = 9
    image_size: int = 48
    train_patches: int = 2560
    val_patches: int = 384
    batch_size: int = 32
    epochs: int = 3
    lr: float = 2e-3
    weight_decay: float = 1e-4
    seed: int = 11


class PatchDataset(Dataset):
    """uint8 patches of a survey mosaic, addressed by lists of indices."""

    def __init__(self, n, cfg, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(cfg.num_classes, (n,), generator=g)
        base = torch.rand(cfg.num_classes, 3, 6, 6, generator=torch.Generator().manual_seed(5))
        coarse = base[self.labels] + 0.35 * torch.randn(n, 3, 6, 6, generator=g)
        images = torch.empty(n, 3, cfg.image_size, cfg.image_size, dtype=torch.uint8)
        for i in range(0, n, 256):
            up = F.interpolate(coarse[i:i + 256], size=cfg.image_size, mode="bilinear")
            images[i:i + 256] = (up * 160 + 40).clamp(0, 255).to(torch.uint8)
        self.images = images

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        return self.images[idx], self.labels[idx]


def batches(dataset, cfg, shuffle):
    sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    return DataLoader(dataset, sampler=BatchSampler(sampler, cfg.batch_size, drop_last=shuffle), batch_size=None)


class Residual(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1, stride, bias=False) if c_in != c_out else nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


def reef_encoder():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        Residual(24, 24, 1), Residual(24, 48, 2), Residual(48, 48, 1), Residual(48, 96, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )


class ReefClassifier(L.LightningModule):
    def __init__(self, cfg, weights):
        super().__init__()
        self.cfg = cfg
        self.encoder = reef_encoder()
        self.encoder.load_state_dict(torch.load(weights, weights_only=True))
        self.encoder.eval()
        self.head = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, cfg.num_classes))
        self.val_acc = MulticlassAccuracy(cfg.num_classes)

    def forward(self, images):
        x = images.float().div_(127.5).sub_(1.0)
        features = self.encoder(x)
        return self.head(features)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        if torch.rand(()) < 0.5:
            images = images.flip(-1)
        loss = F.cross_entropy(self(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        logits = self(images)
        self.val_acc.update(logits, labels)
        self.log("val_loss", F.cross_entropy(logits, labels), batch_size=len(labels))
        self.log("val_acc", self.val_acc)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.head.parameters(), lr=self.cfg.lr, weight_decay=self.cfg.weight_decay)


class History(Callback):
    def __init__(self):
        self.ends, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].detach())
        self.ends.append(time.perf_counter())


def main():
    start = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed, verbose=False)
    with tempfile.TemporaryDirectory() as tmp:
        weights = Path(tmp) / "reef_encoder.pt"
        torch.save(reef_encoder().state_dict(), weights)
        train_loader = batches(PatchDataset(cfg.train_patches, cfg, 1), cfg, shuffle=True)
        val_loader = batches(PatchDataset(cfg.val_patches, cfg, 2), cfg, shuffle=False)
        model = ReefClassifier(cfg, weights)
        history = History()
        trainer = L.Trainer(
            accelerator="cpu", max_epochs=cfg.epochs, logger=CSVLogger(tmp), log_every_n_steps=50,
            callbacks=[history], enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, train_loader, val_loader)
        print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})
        trainer.save_checkpoint(Path(tmp) / "site_model.ckpt")
    steps = [b - a for a, b in zip(history.ends, history.ends[1:])]
    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(steps), 5),
        "fit_s": round(time.perf_counter() - start, 2),
        "loss": round(float(torch.stack(history.losses[-10:]).mean()), 5),
    }))


if __name__ == "__main__":
    main()
