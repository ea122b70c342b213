"""Speaker embeddings from mel spectrograms with a supervised contrastive loss, Lightning."""
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
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    n_speakers: int = 120
    utterances: int = 12
    n_val_speakers: int = 20
    n_mels: int = 40
    n_frames: int = 64
    speakers_per_batch: int = 24
    utterances_per_batch: int = 4
    steps_per_epoch: int = 50
    epochs: int = 3
    channels: int = 64
    emb_dim: int = 64
    temperature: float = 0.1
    lr: float = 1e-3
    seed: int = 3


class Utterances(Dataset):
    """Mel spectrograms of several utterances for each speaker, held in memory."""

    def __init__(self, cfg: Config, n_speakers: int, seed: int):
        g = torch.Generator().manual_seed(seed)
        voice = torch.randn(n_speakers, 1, cfg.n_mels, 1, generator=g) * 0.6
        sway = torch.randn(n_speakers, 1, cfg.n_mels, cfg.n_frames, generator=g).cumsum(3) * 0.05
        noise = torch.randn(n_speakers, cfg.utterances, cfg.n_mels, cfg.n_frames, generator=g)
        self.mels = (voice + sway + noise).flatten(0, 1)
        self.speakers = torch.arange(n_speakers).repeat_interleave(cfg.utterances)

    def __len__(self):
        return len(self.speakers)

    def __getitem__(self, i):
        return self.mels[i], self.speakers[i]


class SpeakerBatches:
    """Index batches with a few utterances from each of several speakers."""

    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.rng = np.random.default_rng(cfg.seed)

    def __len__(self):
        return self.cfg.steps_per_epoch

    def __iter__(self):
        c = self.cfg
        for _ in range(c.steps_per_epoch):
            chosen = self.rng.choice(c.n_speakers, c.speakers_per_batch, replace=False)
            picks = [self.rng.choice(c.utterances, c.utterances_per_batch, replace=False) for _ in chosen]
            yield [int(s * c.utterances + u) for s, us in zip(chosen, picks) for u in us]


class SupConLoss(nn.Module):
    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(self, z, labels):
        sim = z @ z.T / self.temperature
        itself = torch.eye(len(labels), dtype=torch.bool)
        log_denom = torch.logsumexp(sim.masked_fill(itself, float("-inf")), dim=1, keepdim=True)
        positives = ((labels[:, None] == labels[None, :]) & ~itself).float()
        anchor_loss = ((log_denom - sim) * positives).sum(1) / positives.sum(1)
        return anchor_loss.mean()


class SpeakerEncoder(L.LightningModule):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        c = cfg.channels
        self.frames = nn.Sequential(
            nn.Conv1d(cfg.n_mels, c, 5, stride=2, padding=2), nn.BatchNorm1d(c), nn.ReLU(),
            nn.Conv1d(c, c, 3, padding=2, dilation=2), nn.BatchNorm1d(c), nn.ReLU(),
            nn.Conv1d(c, c, 3, padding=3, dilation=3), nn.BatchNorm1d(c), nn.ReLU(),
        )
        self.project = nn.Linear(2 * c, cfg.emb_dim)
        self.criterion = SupConLoss(cfg.temperature)
        self.val_store = []

    def forward(self, mels):
        h = self.frames(mels)
        stats = torch.cat([h.mean(2), h.std(2)], dim=1)
        return F.normalize(self.project(stats), dim=1)

    def training_step(self, batch, batch_idx):
        mels, speakers = batch
        loss = self.criterion(self(mels), speakers)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        mels, speakers = batch
        self.val_store.append((self(mels), speakers))

    def on_validation_epoch_end(self):
        z = torch.cat([a for a, _ in self.val_store])
        y = torch.cat([b for _, b in self.val_store])
        self.val_store.clear()
        sim = (z @ z.T).fill_diagonal_(-2.0)
        self.log("val_recall_at_1", (y[sim.argmax(1)] == y).float().mean())

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.cfg.lr)
        return [opt], [torch.optim.lr_scheduler.ExponentialLR(opt, 0.8)]


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
        train_dl = DataLoader(Utterances(cfg, cfg.n_speakers, 1), batch_sampler=SpeakerBatches(cfg))
        val_dl = DataLoader(Utterances(cfg, cfg.n_val_speakers, 2), batch_size=120)
        rec = StepRecorder()
        trainer = L.Trainer(
            max_epochs=cfg.epochs, accelerator="cpu", devices=1, callbacks=[rec, LearningRateMonitor()],
            logger=CSVLogger(Path(tmp), name="logs"), log_every_n_steps=25, num_sanity_val_steps=0,
            use_distributed_sampler=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(SpeakerEncoder(cfg), train_dl, val_dl)
        print("val recall@1", float(trainer.callback_metrics["val_recall_at_1"]))
    fit_s = time.perf_counter() - start
    loss = float(torch.stack(rec.losses[-10:]).mean())
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(rec.ends))), "fit_s": fit_s, "loss": loss}))


if __name__ == "__main__":
    main()
