"""Convolutional VAE on rendered digits (Lightning)."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from PIL import Image, ImageDraw, ImageFont
from torch.utils.data import DataLoader, TensorDataset


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=9000)
    p.add_argument("--latent", type=int, default=24)
    p.add_argument("--beta", type=float, default=0.5)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=59)
    return p.parse_args()


def render_digits(args):
    """Ten glyphs, drawn once each, then placed, shaded and blurred with noise."""
    rng = np.random.default_rng(args.seed)
    font = ImageFont.load_default()
    glyphs = []
    for d in range(10):
        img = Image.new("L", (12, 12), 0)
        ImageDraw.Draw(img).text((3, 0), str(d), fill=255, font=font)
        glyphs.append(np.asarray(img.resize((24, 24), Image.BICUBIC), dtype=np.float32) / 255)
    glyphs = np.stack(glyphs)
    labels = rng.integers(0, 10, args.images)
    canvas = np.zeros((args.images, 32, 32), dtype=np.float32)
    dy, dx = rng.integers(0, 9, args.images), rng.integers(0, 9, args.images)
    for i in range(args.images):
        canvas[i, dy[i]:dy[i] + 24, dx[i]:dx[i] + 24] = glyphs[labels[i]]
    canvas *= rng.uniform(0.6, 1.0, (args.images, 1, 1)).astype(np.float32)
    canvas += rng.normal(0, 0.03, canvas.shape).astype(np.float32)
    return torch.from_numpy(np.clip(canvas, 0, 1)).unsqueeze(1)


class ConvVAE(L.LightningModule):
    def __init__(self, latent, beta, lr):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(64, 96, 4, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(96 * 16, 2 * latent))
        self.expand = nn.Linear(latent, 96 * 16)
        self.decoder = nn.Sequential(
            nn.ReLU(), nn.Unflatten(1, (96, 4, 4)),
            nn.ConvTranspose2d(96, 64, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, 2, 1))

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(self.expand(z)), mu, logvar

    def elbo(self, x):
        logits, mu, logvar = self(x)
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum() / len(x)
        return rec + self.hparams.beta * kld, rec, kld

    def training_step(self, batch, batch_idx):
        loss, rec, kld = self.elbo(batch[0])
        self.log_dict({"train_loss": loss, "train_rec": rec, "train_kld": kld})
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.elbo(batch[0])[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


class StepClock(Callback):
    def __init__(self):
        self.times = []
        self.losses = []

    def on_train_epoch_start(self, trainer, pl_module):
        self.t = time.perf_counter()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        now = time.perf_counter()
        self.times.append(now - self.t)
        self.t = now
        self.losses.append(outputs["loss"].detach())


def main():
    t0 = time.perf_counter()
    args = get_args()
    L.seed_everything(args.seed)
    images = render_digits(args)
    n_val = args.images // 10
    train = DataLoader(TensorDataset(images[n_val:]), args.batch_size, shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(images[:n_val]), 256)
    root = Path(tempfile.mkdtemp(prefix="vae_"))
    clock = StepClock()
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=CSVLogger(root), log_every_n_steps=50,
        enable_progress_bar=False, callbacks=[clock, ModelCheckpoint(root / "ckpt", monitor="val_loss")])
    trainer.fit(ConvVAE(args.latent, args.beta, args.lr), train, val)
    fit_s = time.perf_counter() - t0
    print({k: round(float(v), 3) for k, v in trainer.callback_metrics.items()})
    print("RESULT " + json.dumps({"step_s": float(np.median(clock.times)), "fit_s": fit_s,
                                  "loss": float(torch.stack(clock.losses[-10:]).mean())}), flush=True)


if __name__ == "__main__":
    main()
