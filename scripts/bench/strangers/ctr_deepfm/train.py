"""Click-through-rate prediction with DeepFM (Lightning)."""
import json
import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler
from torchmetrics.classification import BinaryAUROC

SEED = 9
FIELDS = [1000, 500, 200, 100, 100, 50, 50, 24, 12, 7]
DIM = 16
BATCH = 1024
ROWS = 1024 * 300


class Clicks(Dataset):
    """Indexed with a whole list of rows at a time."""

    def __init__(self):
        rng = np.random.default_rng(SEED)
        cols = [rng.zipf(1.3, ROWS) % n for n in FIELDS]
        x = np.stack(cols, axis=1)
        score = sum(np.sin(0.7 * c + k) for k, c in enumerate(cols)) * 0.6 - 1.0
        y = rng.random(ROWS) < 1 / (1 + np.exp(-score))
        offsets = np.cumsum([0] + FIELDS[:-1])
        self.x = torch.from_numpy(x + offsets)
        self.y = torch.from_numpy(y.astype(np.float32))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, idx):
        return self.x[idx], self.y[idx]


class DeepFM(L.LightningModule):
    def __init__(self):
        super().__init__()
        n = sum(FIELDS)
        self.linear = nn.Embedding(n, 1)
        self.factors = nn.Embedding(n, DIM)
        nn.init.normal_(self.factors.weight, std=0.05)
        self.mlp = nn.Sequential(
            nn.Linear(DIM * len(FIELDS), 256), nn.ReLU(),
            nn.Linear(256, 128), nn.ReLU(),
            nn.Linear(128, 1),
        )
        self.train_auc = BinaryAUROC()

    def forward(self, x):
        v = self.factors(x)
        fm = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1)
        return self.linear(x).sum((1, 2)) + fm + self.mlp(v.flatten(1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.binary_cross_entropy_with_logits(logits, y)
        self.train_auc.update(logits.detach().sigmoid(), y.long())
        self.log("train_loss", loss)
        self.log("train_auc", self.train_auc.compute())
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} auc {self.train_auc.compute():.4f}")
        self.train_auc.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


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
    L.seed_everything(SEED)
    data = Clicks()
    sampler = BatchSampler(
        RandomSampler(data, generator=torch.Generator().manual_seed(SEED)), BATCH, drop_last=True
    )
    loader = DataLoader(data, sampler=sampler, batch_size=None)
    model = DeepFM()
    clock = StepClock()
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, logger=False, callbacks=[clock],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    start = time.perf_counter()
    trainer.fit(model, loader)
    print("RESULT " + json.dumps(clock.result(time.perf_counter() - start)))


if __name__ == "__main__":
    main()
