"""Tags binding sites along protein sequences with a small transformer, Lightning."""
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
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryF1Score


@dataclass
class Config:
    n_residues: int = 20
    length: int = 128
    n_train: int = 832
    n_val: int = 256
    dim: int = 128
    heads: int = 4
    layers: int = 2
    batch_size: int = 16
    epochs: int = 3
    lr: float = 1e-3
    seed: int = 17


def make_proteins(cfg: Config, n: int, seed: int):
    """Residues and per-residue labels; a site is a charged residue near a glycine pair."""
    g = torch.Generator().manual_seed(seed)
    seq = torch.randint(0, cfg.n_residues, (n, cfg.length), generator=g)
    glycine = (seq == 7).float()
    near = F.max_pool1d(glycine[:, None], 9, stride=1, padding=4)[:, 0] > 0
    site = near & (seq < 6)
    return TensorDataset(seq, site.float())


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(att.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class SiteTagger(L.LightningModule):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.residue = nn.Embedding(cfg.n_residues, cfg.dim)
        self.position = nn.Parameter(torch.randn(cfg.length, cfg.dim) * 0.02)
        self.blocks = nn.Sequential(*[EncoderBlock(cfg.dim, cfg.heads) for _ in range(cfg.layers)])
        self.head = nn.Sequential(nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, 1))
        self.val_f1 = BinaryF1Score()

    def forward(self, seq):
        return self.head(self.blocks(self.residue(seq) + self.position)).squeeze(-1)

    def training_step(self, batch, batch_idx):
        seq, site = batch
        loss = F.binary_cross_entropy_with_logits(self(seq), site)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        seq, site = batch
        logits = self(seq)
        self.val_f1.update(logits.sigmoid(), site.long())
        self.log("val_loss", F.binary_cross_entropy_with_logits(logits, site))
        self.log("val_f1", self.val_f1, on_epoch=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.cfg.lr, weight_decay=0.01, fused=True)
        steps = self.trainer.estimated_stepping_batches
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, self.cfg.lr, total_steps=steps)
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
        train_dl = DataLoader(make_proteins(cfg, cfg.n_train, 1), batch_size=cfg.batch_size, shuffle=True, drop_last=True)
        val_dl = DataLoader(make_proteins(cfg, cfg.n_val, 2), batch_size=64)
        rec = StepRecorder()
        ckpt = ModelCheckpoint(dirpath=root / "ckpt", monitor="val_f1", mode="max")
        trainer = L.Trainer(
            max_epochs=cfg.epochs, accelerator="cpu", devices=1, callbacks=[rec, ckpt],
            logger=CSVLogger(root, name="logs"), log_every_n_steps=25, num_sanity_val_steps=0,
            enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(SiteTagger(cfg), train_dl, val_dl)
        print("best val_f1", float(ckpt.best_model_score))
    fit_s = time.perf_counter() - start
    loss = float(torch.stack(rec.losses[-10:]).mean())
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(rec.ends))), "fit_s": fit_s, "loss": loss}))


if __name__ == "__main__":
    main()
