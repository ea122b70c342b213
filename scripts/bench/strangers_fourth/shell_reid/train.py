"""Re-identification of snails by the pattern of their shell: embedding with the batch-hard triplet loss
("In Defense of the Triplet Loss for Person Re-Identification"), P snails x K pictures in each batch."""
import argparse
import json
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class ShellPictures(Dataset):
    """Ready batches of P x K pictures, rendered from a pattern per snail."""

    def __init__(self, snails, batches, p, k, size, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.pattern = torch.randn(snails, 3, size // 4, size // 4, generator=self.g)
        self.who = torch.stack([torch.randperm(snails, generator=self.g)[:p] for _ in range(batches)])
        self.k, self.size = k, size

    def __len__(self):
        return len(self.who)

    def __getitem__(self, i):
        labels = self.who[i].repeat_interleave(self.k)
        g = torch.Generator().manual_seed(i)
        shift = torch.randint(-2, 3, (2,), generator=g).tolist()
        coarse = self.pattern[labels].roll(shift, dims=(2, 3))
        images = F.interpolate(coarse, size=(self.size, self.size), mode="bilinear", align_corners=False)
        light = 0.7 + 0.6 * torch.rand(len(labels), 3, 1, 1, generator=g)
        return images * light + 0.5 * torch.randn(images.shape, generator=g), labels


def batch_hard_triplet(embeddings, labels, margin):
    losses = []
    for a in range(len(labels)):
        positives, negatives = [], []
        for b in range(len(labels)):
            if a == b:
                continue
            distance = torch.norm(embeddings[a] - embeddings[b])
            if labels[a] == labels[b]:
                positives.append(distance)
            else:
                negatives.append(distance)
        hardest_positive = torch.stack(positives).max()
        hardest_negative = torch.stack(negatives).min()
        losses.append(F.softplus(hardest_positive - hardest_negative + margin))
    return torch.stack(losses).mean()


class ShellNet(L.LightningModule):
    def __init__(self, dim, margin, lr):
        super().__init__()
        self.save_hyperparameters()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
            nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.BatchNorm2d(128), nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, dim),
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = batch_hard_triplet(self.cnn(images), labels, self.hparams.margin)
        self.log("triplet", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


class Times(L.Callback):
    def __init__(self):
        self.when, self.loss = [], []

    def on_train_start(self, *_):
        self.start = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.loss.append(outputs["loss"].item())
        self.when.append(time.perf_counter())
        if batch_idx % 10 == 0:
            print(f"batch {batch_idx}: triplet {self.loss[-1]:.4f}", flush=True)

    def on_train_end(self, *_):
        print("RESULT " + json.dumps({
            "step_s": (self.when[-1] - self.when[2]) / (len(self.when) - 3),
            "fit_s": time.perf_counter() - self.start,
            "loss": sum(self.loss[-10:]) / 10,
        }), flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--snails", type=int, default=60)
    ap.add_argument("--batches", type=int, default=70)
    ap.add_argument("-p", type=int, default=12)
    ap.add_argument("-k", type=int, default=4)
    ap.add_argument("--size", type=int, default=96)
    ap.add_argument("--dim", type=int, default=64)
    ap.add_argument("--margin", type=float, default=0.3)
    ap.add_argument("--lr", type=float, default=5e-4)
    args = ap.parse_args()
    L.seed_everything(14, verbose=False)
    data = ShellPictures(args.snails, args.batches, args.p, args.k, args.size, seed=14)
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Times()],
    )
    trainer.fit(ShellNet(args.dim, args.margin, args.lr), DataLoader(data, batch_size=None))


if __name__ == "__main__":
    main()
