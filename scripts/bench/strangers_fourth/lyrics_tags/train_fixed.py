"""Mood tags for song lyrics (multi-label), embedding + attention pooling."""
import argparse
import json
import shutil
import tempfile
import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

TAGS = 20


def make_lyrics(songs, words, length, seed):
    rng = np.random.default_rng(seed)
    mood = rng.random((songs, TAGS)) < 0.15
    tokens = (words * rng.power(0.4, (songs, length))).astype(np.int64)
    own = rng.integers(0, words, (TAGS, 40))
    for s in range(songs):
        for tag in np.flatnonzero(mood[s]):
            at = rng.integers(0, length, 10)
            tokens[s, at] = own[tag, rng.integers(0, 40, 10)]
    return torch.from_numpy(tokens), torch.from_numpy(mood.astype(np.float32))


class LyricsTagger(L.LightningModule):
    def __init__(self, words, dim=128, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Embedding(words, dim)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.score = nn.Linear(dim, TAGS)
        self.value = nn.Linear(dim, TAGS)

    def forward(self, tokens):
        e = self.embed(tokens)
        h = e + torch.relu(self.conv(e.transpose(1, 2))).transpose(1, 2)
        attention = self.score(h).softmax(dim=1)
        return (attention * self.value(h)).sum(dim=1)

    def training_step(self, batch, batch_idx):
        tokens, mood = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self(tokens), mood)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)
        sched = torch.optim.lr_scheduler.LinearLR(opt, 0.2, 1.0, total_iters=20)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Timing(L.Callback):
    def __init__(self):
        self.loss, self.at = [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.loss.append(float(outputs["loss"]))
        self.at.append(time.perf_counter())
        if batch_idx % 20 == 0:
            print(f"{trainer.current_epoch}/{batch_idx} loss {self.loss[-1]:.4f}", flush=True)


def get_callbacks(folder, patience_steps):
    """What we use in all projects: the run can be resumed after a node goes down."""
    return [
        LearningRateMonitor(logging_interval="step"),
        ModelCheckpoint(
            dirpath=folder,
            filename="{step}-{train_loss:.4f}",
            monitor="train_loss",
            save_top_k=3,
            save_last=True,
            every_n_train_steps=patience_steps,
        ),
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--songs", type=int, default=3200)
    parser.add_argument("--words", type=int, default=30000)
    parser.add_argument("--length", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--patience-steps", type=int, default=100)
    parser.add_argument("--out", default=None)
    args = parser.parse_args()
    L.seed_everything(33, verbose=False)

    out = args.out or tempfile.mkdtemp(prefix="lyrics_")
    loader = DataLoader(
        TensorDataset(*make_lyrics(args.songs, args.words, args.length, 33)), args.batch_size, shuffle=True, drop_last=True
    )
    timing = Timing()
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=CSVLogger(out, name="csv"),
        callbacks=[timing, *get_callbacks(out, args.patience_steps)],
        gradient_clip_val=1.0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    start = time.perf_counter()
    trainer.fit(LyricsTagger(args.words), loader)
    fit_s = time.perf_counter() - start
    if args.out is None:
        shutil.rmtree(out)
    print("RESULT " + json.dumps({
        "step_s": (timing.at[-1] - timing.at[4]) / (len(timing.at) - 5),
        "fit_s": fit_s,
        "loss": sum(timing.loss[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
