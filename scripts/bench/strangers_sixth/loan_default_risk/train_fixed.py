"""Probability of default for consumer loans: tabular network with embeddings, Lightning."""
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision


@dataclass
class Config:
    n_train: int = 163_840
    n_val: int = 16_384
    n_numeric: int = 32
    vocab: tuple = (12, 51, 8, 200, 30)
    emb_dim: int = 12
    hidden: int = 256
    batch_size: int = 1024
    epochs: int = 3
    lr: float = 2e-3
    seed: int = 5


class Loans(Dataset):
    def __init__(self, cfg: Config, n: int, seed: int):
        g = torch.Generator().manual_seed(seed)
        world = torch.Generator().manual_seed(cfg.seed)
        self.numeric = torch.randn(n, cfg.n_numeric, generator=g)
        self.categ = torch.stack([torch.randint(0, v, (n,), generator=g) for v in cfg.vocab], dim=1)
        score = self.numeric @ (torch.randn(cfg.n_numeric, generator=world) * 0.25)
        score = score + 0.5 * self.numeric[:, 0] * self.numeric[:, 1] - 2.0
        for k, v in enumerate(cfg.vocab):
            score = score + (torch.randn(v, generator=world) * 0.4)[self.categ[:, k]]
        self.target = (torch.rand(n, generator=g) < torch.sigmoid(score)).float()

    def __len__(self):
        return len(self.target)

    def __getitem__(self, idx):
        return self.numeric[idx], self.categ[idx], self.target[idx]


class LoanData(L.LightningDataModule):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage=None):
        self.train_set = Loans(self.cfg, self.cfg.n_train, 100)
        self.val_set = Loans(self.cfg, self.cfg.n_val, 200)

    def train_dataloader(self):
        sampler = BatchSampler(RandomSampler(self.train_set), self.cfg.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=sampler, batch_size=None)

    def val_dataloader(self):
        sampler = BatchSampler(SequentialSampler(self.val_set), 4 * self.cfg.batch_size, drop_last=False)
        return DataLoader(self.val_set, sampler=sampler, batch_size=None)


class DefaultRisk(L.LightningModule):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.embeddings = nn.ModuleList(nn.Embedding(v, cfg.emb_dim) for v in cfg.vocab)
        width = cfg.n_numeric + cfg.emb_dim * len(cfg.vocab)
        self.body = nn.Sequential(
            nn.Linear(width, cfg.hidden), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(cfg.hidden, 1),
        )
        metrics = MetricCollection({"auroc": BinaryAUROC(), "ap": BinaryAveragePrecision()})
        self.train_metrics = metrics.clone(prefix="train_")
        self.val_metrics = metrics.clone(prefix="val_")

    def forward(self, numeric, categ):
        emb = [e(categ[:, k]) for k, e in enumerate(self.embeddings)]
        return self.body(torch.cat([numeric, *emb], dim=1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        numeric, categ, y = batch
        logits = self(numeric, categ)
        loss = F.binary_cross_entropy_with_logits(logits, y)
        self.train_metrics.update(logits.detach().sigmoid(), y.long())
        self.log("train_loss", loss)
        return loss

    def on_train_epoch_end(self):
        self.log_dict(self.train_metrics.compute())
        self.train_metrics.reset()

    def validation_step(self, batch, batch_idx):
        numeric, categ, y = batch
        logits = self(numeric, categ)
        self.val_metrics.update(logits.sigmoid(), y.long())
        self.log("val_loss", F.binary_cross_entropy_with_logits(logits, y), batch_size=len(y))

    def on_validation_epoch_end(self):
        self.log_dict(self.val_metrics.compute())
        self.val_metrics.reset()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.cfg.lr, weight_decay=1e-3)
        total = self.trainer.estimated_stepping_batches
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, self.cfg.lr, total_steps=total)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class StepRecorder(Callback):
    def __init__(self):
        self.ends, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].detach())
        self.ends.append(time.perf_counter())


def main():
    start = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        rec = StepRecorder()
        ckpt = ModelCheckpoint(dirpath=root / "ckpt", monitor="val_auroc", mode="max")
        trainer = L.Trainer(
            max_epochs=cfg.epochs, accelerator="cpu", devices=1, callbacks=[rec, ckpt],
            logger=CSVLogger(root, name="logs"), log_every_n_steps=50, num_sanity_val_steps=0,
            enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(DefaultRisk(cfg), datamodule=LoanData(cfg))
        shown = {k: round(float(v), 4) for k, v in trainer.callback_metrics.items()}
        print("final", shown)
    fit_s = time.perf_counter() - start
    loss = float(torch.stack(rec.losses[-10:]).mean())
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(rec.ends))), "fit_s": fit_s, "loss": loss}))


if __name__ == "__main__":
    main()
