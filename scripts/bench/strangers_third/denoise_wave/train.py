"""Denoising vibration recordings with a one-dimensional U-Net."""
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
    p.add_argument("--clips", type=int, default=1024)
    p.add_argument("--samples", type=int, default=1024)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=9)
    return p.parse_args()


def recordings(n, samples):
    t = torch.arange(samples) / samples
    f = torch.randint(4, 60, (n, 4, 1)).float()
    amplitude, phase = torch.rand(n, 4, 1), 6.28 * torch.rand(n, 4, 1)
    clean = (amplitude * torch.sin(6.2832 * f * t + phase)).sum(1, keepdim=True)
    noise = 0.5 * torch.randn(n, 1, samples) + (torch.rand(n, 1, samples) > 0.99) * 2.0
    return TensorDataset(clean + noise, clean)


def stage(cin, cout, stride=1):
    return nn.Sequential(nn.Conv1d(cin, cout, 9, stride=stride, padding=4, bias=False), nn.BatchNorm1d(cout),
                         nn.ReLU(inplace=True))


class WaveUNet(L.LightningModule):
    def __init__(self, lr, width=20):
        super().__init__()
        self.lr = lr
        self.enc1 = stage(1, width, 2)
        self.enc2 = stage(width, 2 * width, 2)
        self.enc3 = stage(2 * width, 4 * width, 2)
        self.dec2 = stage(6 * width, 2 * width)
        self.dec1 = stage(3 * width, width)
        self.head = nn.ConvTranspose1d(width, 1, 4, stride=2, padding=1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(a)
        c = self.enc3(b)
        b = self.dec2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.dec1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.head(a)

    def training_step(self, batch, _):
        noisy, clean = batch
        return F.smooth_l1_loss(self(noisy), clean)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr,
                                                       total_steps=self.trainer.estimated_stepping_batches)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Stopwatch(L.Callback):
    def __init__(self):
        self.stamps, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())
        self.stamps.append(time.perf_counter())


def main():
    args = get_args()
    L.seed_everything(args.seed)
    dataset = recordings(args.clips, args.samples)
    sampler = BatchSampler(RandomSampler(dataset), args.batch, drop_last=True)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None)
    watch = Stopwatch()
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[watch],
    )
    model = WaveUNet(args.lr)
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
