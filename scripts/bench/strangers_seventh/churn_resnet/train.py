"""Churn prediction for a telecom customer table with a residual MLP."""
import json
import logging
import statistics
import tempfile
import time
import warnings
from dataclasses import dataclass, field

import lightning as L
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler
from torchmetrics.classification import BinaryAUROC

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore")


@dataclass
class Config:
    train_customers: int = 56000
    val_customers: int = 8000
    numeric: int = 18
    cardinalities: list = field(default_factory=lambda: [4, 12, 51, 7, 3, 28, 9, 16, 5, 40])
    embed_dim: int = 8
    width: int = 256
    hidden: int = 512
    blocks: int = 5
    batch_size: int = 512
    epochs: int = 2
    lr: float = 2e-3
    weight_decay: float = 1e-4
    seed: int = 3


def customer_table(n, cfg, seed):
    rng = np.random.default_rng(seed)
    numeric = rng.standard_normal((n, cfg.numeric))
    table = pd.DataFrame(numeric, columns=[f"num_{i}" for i in range(cfg.numeric)])
    score = 1.2 * numeric[:, 0] * numeric[:, 1] - 0.8 * np.abs(numeric[:, 2]) + 0.5 * numeric[:, 3]
    for i, size in enumerate(cfg.cardinalities):
        codes = rng.integers(size, size=n)
        effect = np.random.default_rng(100 + i).normal(0, 0.5, size)
        score = score + effect[codes]
        table[f"cat_{i}"] = codes
    table["churned"] = (rng.random(n) < 1 / (1 + np.exp(-score))).astype(np.float32)
    return table


class CustomerDataset(Dataset):
    """Columns as tensors, addressed by lists of row numbers."""

    def __init__(self, table, cfg):
        self.numeric = torch.from_numpy(table[[f"num_{i}" for i in range(cfg.numeric)]].to_numpy(np.float32))
        codes = table[[f"cat_{i}" for i in range(len(cfg.cardinalities))]].to_numpy(np.int64)
        self.codes = torch.from_numpy(codes)
        self.churned = torch.from_numpy(table["churned"].to_numpy())

    def __len__(self):
        return len(self.churned)

    def __getitem__(self, rows):
        return self.numeric[rows], self.codes[rows], self.churned[rows]


def make_loader(dataset, batch_size, shuffle):
    sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    return DataLoader(dataset, sampler=BatchSampler(sampler, batch_size, drop_last=shuffle), batch_size=None)


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class ChurnModel(L.LightningModule):
    def __init__(self, cfg, total_steps):
        super().__init__()
        self.cfg = cfg
        self.total_steps = total_steps
        sizes = torch.tensor(cfg.cardinalities)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes)
        self.embed = nn.Embedding(int(sizes.sum()), cfg.embed_dim)
        self.inlet = nn.Linear(cfg.numeric + len(cfg.cardinalities) * cfg.embed_dim, cfg.width)
        self.blocks = nn.Sequential(*[Block(cfg.width, cfg.hidden) for _ in range(cfg.blocks)])
        self.head = nn.Sequential(nn.LayerNorm(cfg.width), nn.ReLU(), nn.Linear(cfg.width, 1))
        self.val_auroc = BinaryAUROC()

    def forward(self, numeric, codes):
        embedded = self.embed(codes + self.offsets).flatten(1)
        x = self.inlet(torch.cat([numeric, embedded], dim=1))
        return self.head(self.blocks(x)).squeeze(1)

    def training_step(self, batch, batch_idx):
        numeric, codes, churned = batch
        loss = F.binary_cross_entropy_with_logits(self(numeric, codes), churned)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        numeric, codes, churned = batch
        logits = self(numeric, codes)
        self.val_auroc.update(logits, churned.int())
        self.log("val_loss", F.binary_cross_entropy_with_logits(logits, churned), batch_size=len(churned))
        self.log("val_auroc", self.val_auroc, on_step=False, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.cfg.lr, weight_decay=self.cfg.weight_decay, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.cfg.lr, total_steps=self.total_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Timer(Callback):
    def __init__(self):
        self.ends, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].detach())
        self.ends.append(time.perf_counter())


def main():
    start = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed, verbose=False)
    train = CustomerDataset(customer_table(cfg.train_customers, cfg, 1), cfg)
    val = CustomerDataset(customer_table(cfg.val_customers, cfg, 2), cfg)
    train_loader = make_loader(train, cfg.batch_size, shuffle=True)
    val_loader = make_loader(val, 2048, shuffle=False)
    timer = Timer()
    with tempfile.TemporaryDirectory() as tmp:
        best = ModelCheckpoint(dirpath=tmp, monitor="val_auroc", mode="max", save_top_k=1)
        trainer = L.Trainer(
            accelerator="cpu", max_epochs=cfg.epochs, logger=CSVLogger(tmp), log_every_n_steps=50,
            callbacks=[timer, best], enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(ChurnModel(cfg, cfg.epochs * len(train_loader)), train_loader, val_loader)
        print("best val_auroc", round(float(best.best_model_score), 4))
    steps = [b - a for a, b in zip(timer.ends, timer.ends[1:])]
    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(steps), 5),
        "fit_s": round(time.perf_counter() - start, 2),
        "loss": round(float(torch.stack(timer.losses[-10:]).mean()), 5),
    }))


if __name__ == "__main__":
    main()
