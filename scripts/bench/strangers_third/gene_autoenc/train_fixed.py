"""Autoencoder for single-cell gene expression (log counts)."""
import argparse
import json
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--cells", type=int, default=3072)
    p.add_argument("--genes", type=int, default=2000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--weight-decay", type=float, default=1e-2)
    p.add_argument("--seed", type=int, default=30)
    return p.parse_args()


class GeneAutoencoder(L.LightningModule):
    def __init__(self, genes, lr, weight_decay, width=768, code=32):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(genes, width), nn.ReLU(), nn.Linear(width, code))
        self.decoder = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, genes))

    def training_step(self, batch, _):
        (x,) = batch
        noisy = F.dropout(x, 0.1, training=True)
        return F.mse_loss(self.decoder(self.encoder(noisy)), x)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay,
                                 fused=True)


class Stopwatch(L.Callback):
    def __init__(self):
        self.stamps, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())
        self.stamps.append(time.perf_counter())


def expression(cells, genes):
    programs = torch.randn(20, genes).clamp(min=0)
    activity = torch.rand(cells, 20) ** 3
    return torch.log1p(torch.poisson(activity @ programs))


def main():
    args = get_args()
    L.seed_everything(args.seed)
    dataset = TensorDataset(expression(args.cells, args.genes))
    sampler = BatchSampler(RandomSampler(dataset), args.batch, drop_last=True)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None)
    watch = Stopwatch()
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[watch],
    )
    model = GeneAutoencoder(args.genes, args.lr, args.weight_decay)
    start = time.perf_counter()
    trainer.fit(model, loader)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (watch.stamps[-1] - watch.stamps[9]) / (len(watch.stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(watch.losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
