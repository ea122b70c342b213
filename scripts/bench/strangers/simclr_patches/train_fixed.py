"""Contrastive pre-training (SimCLR) on a small set of texture patches (Lightning)."""
import json
import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEED = 31
N = 256
SIDE = 40
CROP = 32
BATCH = 64
EPOCHS = 75
TEMPERATURE = 0.2


class Patches(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(SEED)
        base = torch.randn(N, 3, 10, 10, generator=g)
        self.images = F.interpolate(base, size=SIDE, mode="bicubic").contiguous()

    def __len__(self):
        return N

    def view(self, img):
        i, j = np.random.randint(0, SIDE - CROP + 1, 2)
        out = img[:, i:i + CROP, j:j + CROP]
        if np.random.random() < 0.5:
            out = out.flip(-1)
        gain, bias = np.random.uniform(0.7, 1.3), np.random.uniform(-0.2, 0.2)
        return out * gain + bias

    def __getitem__(self, i):
        img = self.images[i]
        return self.view(img), self.view(img)


class SimCLR(L.LightningModule):
    def __init__(self):
        super().__init__()
        chans = [3, 16, 32, 64]
        layers = []
        for a, b in zip(chans, chans[1:]):
            layers += [nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.project = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))

    def training_step(self, batch, batch_idx):
        a, b = batch
        z = F.normalize(self.project(self.encoder(torch.cat([a, b]))), dim=1)
        n = len(a)
        sim = z @ z.T / TEMPERATURE
        sim.fill_diagonal_(-1e9)
        target = torch.arange(2 * n).roll(n)
        loss = F.cross_entropy(sim, target)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        if self.current_epoch % 15 == 14:
            print(f"epoch {self.current_epoch} loss {self.trainer.callback_metrics['loss']:.4f}")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)]


class StepClock(L.Callback):
    """Wall time of the fit and of its optimizer steps."""

    def __init__(self):
        self.t20 = self.last = None
        self.paused = self.paused_last = self.paused20 = 0.0
        self.steps = 0
        self.losses = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.last = time.perf_counter()
        self.paused_last = self.paused
        self.steps = trainer.global_step
        self.losses.append(outputs["loss"].detach())
        if self.steps == 20:
            self.t20, self.paused20 = self.last, self.paused

    def on_validation_start(self, trainer, pl_module):
        self.val_start = time.perf_counter()

    def on_validation_end(self, trainer, pl_module):
        self.paused += time.perf_counter() - self.val_start

    def result(self, fit_s):
        busy = self.last - self.t20 - (self.paused_last - self.paused20)
        return {
            "step_s": busy / (self.steps - 20),
            "fit_s": fit_s,
            "loss": torch.stack(self.losses[-30:]).mean().item(),
        }

def main():
    L.seed_everything(SEED, workers=True)
    loader = DataLoader(
        Patches(), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True,
        generator=torch.Generator().manual_seed(SEED),
    )
    model = SimCLR()
    clock = StepClock()
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=1, logger=False, callbacks=[clock],
        log_every_n_steps=4,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    start = time.perf_counter()
    trainer.fit(model, loader)
    print("RESULT " + json.dumps(clock.result(time.perf_counter() - start)))


if __name__ == "__main__":
    main()
