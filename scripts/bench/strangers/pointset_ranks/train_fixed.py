"""PointNet-style classifier on point sets of varying size, two CPU ranks (Lightning DDP, gloo)."""
import json
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, Dataset

SEED = 47
WORLD = 2
CLASSES = 6
GLOBAL_BATCH = 16
N = 1600
EPOCHS = 3


class PointSets(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(SEED)
        self.sizes = (64 * 2 ** (4 * torch.rand(N, generator=g))).long()
        self.labels = torch.randint(CLASSES, (N,), generator=g)
        self.points = []
        for n, c in zip(self.sizes.tolist(), self.labels.tolist()):
            p = torch.randn(n, 3, generator=g)
            p = p / p.norm(dim=1, keepdim=True) * (1 + 0.3 * torch.sin((c + 1) * p[:, :1]))
            self.points.append(p + 0.02 * torch.randn(n, 3, generator=g))

    def __len__(self):
        return N

    def __getitem__(self, i):
        return self.points[i], self.labels[i]


def collate(items):
    sizes = torch.tensor([len(p) for p, _ in items])
    owner = torch.repeat_interleave(torch.arange(len(items)), sizes)
    return torch.cat([p for p, _ in items]), owner, torch.stack([y for _, y in items])


class SizeSortedBatches:
    """Shuffled global batches, ordered by size inside, one share for each rank."""

    def __init__(self, sizes, rank):
        self.sizes, self.rank, self.epoch = sizes, rank, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.sizes) // GLOBAL_BATCH

    def __iter__(self):
        g = torch.Generator().manual_seed(SEED + self.epoch)
        for idx in torch.randperm(len(self.sizes), generator=g).split(GLOBAL_BATCH):
            order = idx[self.sizes[idx].argsort(descending=True)]
            yield order[self.rank::WORLD].tolist()


class PointNet(L.LightningModule):
    def __init__(self, data):
        super().__init__()
        self.data = data
        self.local = nn.Sequential(
            nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 128),
        )
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, points, owner, n):
        h = self.local(points)
        pooled = h.new_zeros(n, h.size(1)).index_add(0, owner, h)
        return self.head(pooled / torch.bincount(owner, minlength=n).unsqueeze(1))

    def training_step(self, batch, batch_idx):
        points, owner, y = batch
        return F.cross_entropy(self(points, owner, len(y)), y)

    def train_dataloader(self):
        return DataLoader(
            self.data, batch_sampler=SizeSortedBatches(self.data.sizes, self.trainer.global_rank), collate_fn=collate
        )

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


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
    torch.set_num_threads(1)
    L.seed_everything(SEED)
    model = PointNet(PointSets())
    clock = StepClock()
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=WORLD, logger=False, callbacks=[clock],
        strategy=DDPStrategy(process_group_backend="gloo"), use_distributed_sampler=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    start = time.perf_counter()
    trainer.fit(model)
    fit_s = time.perf_counter() - start
    if trainer.is_global_zero:
        print("RESULT " + json.dumps(clock.result(fit_s)))


if __name__ == "__main__":
    main()
