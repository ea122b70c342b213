"""Kelp canopy segmentation from satellite tiles (five bands), U-Net."""
import argparse
import json
import time

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


def tiles(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randn(n, 1, size // 8, size // 8, generator=g)
    field = F.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=False)
    kelp = (field > 0.6).float()
    water = torch.randn(n, 5, 1, 1, generator=g)
    signature = torch.tensor([0.1, 0.4, -0.2, 1.0, 0.3]).view(1, 5, 1, 1)
    bands = 0.3 * water + kelp * signature + 0.5 * torch.randn(n, 5, size, size, generator=g)
    return bands, kelp


class TileDataset(Dataset):
    def __init__(self, bands, kelp, augment):
        self.bands, self.kelp, self.augment = bands, kelp, augment

    def __len__(self):
        return len(self.bands)

    def __getitem__(self, i):
        x, y = self.bands[i], self.kelp[i]
        if self.augment and torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        return x, y


def double(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, bands=5, base=24):
        super().__init__()
        self.down1, self.down2, self.bottom = double(bands, base), double(base, 2 * base), double(2 * base, 4 * base)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * base, 2 * base, 2, 2), nn.ConvTranspose2d(2 * base, base, 2, 2)
        self.merge2, self.merge1 = double(4 * base, 2 * base), double(2 * base, base)
        self.out = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat([self.up2(c), b], dim=1))
        return self.out(self.merge1(torch.cat([self.up1(b), a], dim=1)))


class KelpModule(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.net, self.lr = UNet().to(memory_format=torch.channels_last), lr

    def loss(self, batch):
        x, y = batch
        logits = self.net(x.contiguous(memory_format=torch.channels_last))
        p = logits.sigmoid()
        dice = 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)
        return F.binary_cross_entropy_with_logits(logits, y) + dice

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch), prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.lr, fused=True)
        total = int(self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {
            "scheduler": torch.optim.lr_scheduler.OneCycleLR(opt, self.lr, total_steps=total), "interval": "step"}}


class Log(L.Callback):
    def __init__(self):
        self.t, self.losses = [], []

    def on_fit_start(self, trainer, module):
        self.t0 = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())
        self.t.append(time.perf_counter())
        if trainer.global_step % 20 == 0:
            print(f"step {trainer.global_step} loss {self.losses[-1]:.4f}", flush=True)

    def on_fit_end(self, trainer, module):
        print("val_loss", round(trainer.callback_metrics["val_loss"].item(), 4))
        print("RESULT " + json.dumps({
            "step_s": (self.t[-1] - self.t[4]) / (len(self.t) - 5),
            "fit_s": time.perf_counter() - self.t0,
            "loss": sum(self.losses[-10:]) / 10,
        }), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=560)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    L.seed_everything(21, verbose=False)
    bands, kelp = tiles(args.tiles, args.size, 21)
    cut = args.tiles // 8
    train = DataLoader(TileDataset(bands[cut:], kelp[cut:], True), args.batch, shuffle=True, drop_last=True)
    val = DataLoader(TileDataset(bands[:cut], kelp[:cut], False), 2 * args.batch)
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False, num_sanity_val_steps=0,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Log()],
    )
    trainer.fit(KelpModule(args.lr), train, val)
