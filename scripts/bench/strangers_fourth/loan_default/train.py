"""Credit default prediction on tabular data, Lightning + torchmetrics."""
import json
import time
from argparse import ArgumentParser

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision


class LoanData(pl.LightningDataModule):
    def __init__(self, n, n_num, batch_size):
        super().__init__()
        self.n, self.n_num, self.batch_size = n, n_num, batch_size

    def setup(self, stage=None):
        g = torch.Generator().manual_seed(77)
        x = torch.randn(self.n, self.n_num, generator=g)
        purpose = torch.randint(40, (self.n,), generator=g)
        w = torch.randn(self.n_num, generator=g) / self.n_num**0.5
        effect = torch.randn(40, generator=g)
        score = 1.5 * x @ w + effect[purpose] + x[:, 0] * x[:, 1] - 2.2
        default = (torch.rand(self.n, generator=g) < torch.sigmoid(score)).float()
        self.train_set = TensorDataset(x, purpose, default)

    def train_dataloader(self):
        # whole batches are indexed, not single rows
        batches = BatchSampler(RandomSampler(self.train_set), self.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=batches, batch_size=None)


class DefaultModel(pl.LightningModule):
    def __init__(self, n_num, hidden, lr):
        super().__init__()
        self.save_hyperparameters()
        self.purpose = nn.Embedding(40, 16)
        self.net = nn.Sequential(
            nn.Linear(n_num + 16, hidden), nn.SiLU(), nn.Dropout(0.1),
            nn.Linear(hidden, hidden), nn.SiLU(), nn.Dropout(0.1),
            nn.Linear(hidden, 1),
        )
        self.criterion = nn.BCEWithLogitsLoss()
        self.train_metrics = MetricCollection(
            {"auroc": BinaryAUROC(), "ap": BinaryAveragePrecision()}, prefix="train/"
        )

    def forward(self, x, purpose):
        return self.net(torch.cat([x, self.purpose(purpose)], dim=1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, purpose, y = batch
        logits = self(x, purpose)
        loss = self.criterion(logits, y)
        self.log("train/loss", loss)
        self.track(logits.detach(), y)
        return loss

    def track(self, logits, y):
        self.train_metrics.update(torch.sigmoid(logits), y.long())
        self.log_dict(self.train_metrics.compute(), prog_bar=True)

    def on_train_epoch_end(self):
        scores = self.train_metrics.compute()
        print(f"epoch {self.current_epoch} " + " ".join(f"{k} {v:.4f}" for k, v in scores.items()), flush=True)
        self.train_metrics.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return optimizer


class Stopwatch(pl.Callback):
    ends, losses, t0 = [], [], 0.0

    def on_train_start(self, trainer, module):
        self.t0 = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.ends.append(time.perf_counter())
        self.losses.append(outputs["loss"].item())
        if len(self.ends) % 60 == 0:
            print("step", len(self.ends), "loss", round(sum(self.losses[-60:]) / 60, 4), flush=True)

    def on_train_end(self, trainer, module):
        report = {
            "step_s": (self.ends[-1] - self.ends[9]) / (len(self.ends) - 10),
            "fit_s": time.perf_counter() - self.t0,
            "loss": sum(self.losses[-50:]) / 50,
        }
        print("RESULT " + json.dumps(report), flush=True)


if __name__ == "__main__":
    cli = ArgumentParser()
    cli.add_argument("--loans", type=int, default=90_000)
    cli.add_argument("--features", type=int, default=60)
    cli.add_argument("--hidden", type=int, default=512)
    cli.add_argument("--batch-size", type=int, default=256)
    cli.add_argument("--epochs", type=int, default=2)
    cli.add_argument("--lr", type=float, default=1e-3)
    hp = cli.parse_args()
    pl.seed_everything(77, verbose=False)
    trainer = pl.Trainer(
        max_epochs=hp.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Stopwatch()],
    )
    trainer.fit(DefaultModel(hp.features, hp.hidden, hp.lr), LoanData(hp.loans, hp.features, hp.batch_size))
