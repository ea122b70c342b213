"""Land cover: train a head on a frozen, self-supervised backbone (Lightning)."""
import argparse
import json
import os
import tempfile
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = 8
BANDS = 4


def scenes(n, size, seed):
    """Four-band tiles: class-dependent spectra, texture frequency and field edges."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (n,), generator=g)
    spectrum = torch.rand(CLASSES, BANDS, generator=torch.Generator().manual_seed(1))[label]
    ax = torch.linspace(0, 1, size)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    freq = (3.0 + 4.0 * label)[:, None, None]
    angle = torch.rand(n, 1, 1, generator=g) * 3.14
    texture = torch.sin(freq * (xx * angle.cos() + yy * angle.sin()) * 6.28)
    tile = spectrum[..., None, None] + 0.2 * texture[:, None]
    return tile + 0.25 * torch.randn(n, BANDS, size, size, generator=g), label


class Tiles(Dataset):
    def __init__(self, n, seed, size=56, crop=48, train=True):
        self.x, self.y = scenes(n, size, seed)
        self.crop, self.slack, self.train = crop, size - crop, train

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        a, b = torch.randint(self.slack + 1, (2,)).tolist() if self.train else (self.slack // 2,) * 2
        tile = self.x[i, :, a:a + self.crop, b:b + self.crop]
        if self.train and torch.rand(()) < 0.5:
            tile = tile.flip(2)
        return tile, self.y[i]


class Backbone(nn.Module):
    """ConvNet with GroupNorm; the weights come from a pre-training run."""

    def __init__(self, widths=(24, 48, 96)):
        super().__init__()
        layers, cin = [], BANDS
        for w in widths:
            layers += [
                nn.Conv2d(cin, w, 3, stride=2, padding=1), nn.GroupNorm(8, w), nn.ReLU(inplace=True),
                nn.Conv2d(w, w, 3, padding=1), nn.GroupNorm(8, w), nn.ReLU(inplace=True),
            ]
            cin = w
        self.layers = nn.Sequential(*layers)
        self.out_features = cin

    def forward(self, x):
        return self.layers(x)


def pretrained_backbone(path):
    backbone = Backbone()
    if not os.path.exists(path):
        torch.manual_seed(123)
        for m in backbone.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
        torch.save(backbone.state_dict(), path)
    backbone.load_state_dict(torch.load(path, weights_only=True))
    return backbone


class AttentionPoolHead(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.score = nn.Conv2d(dim, 1, 1)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, classes))

    def forward(self, fmap):
        weight = self.score(fmap).flatten(2).softmax(-1)
        attended = (fmap.flatten(2) * weight).sum(-1)
        return self.mlp(torch.cat([attended, fmap.mean((2, 3))], 1))


class Probe(L.LightningModule):
    def __init__(self, backbone, lr):
        super().__init__()
        self.backbone = backbone
        self.head = AttentionPoolHead(backbone.out_features, CLASSES)
        self.lr = lr
        self.trace, self.seconds = [], []

    def forward(self, x):
        features = self.backbone(x)
        return self.head(features)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.05)
        self.log("train/loss", loss)
        self.trace.append(loss.detach())
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val/acc", (self(x).argmax(1) == y).float().mean())

    def on_train_epoch_start(self):
        self._t = time.perf_counter()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        t = time.perf_counter()
        self.seconds.append(t - self._t)
        self._t = t

    def configure_optimizers(self):
        # the backbone stays as it is: only the head is trained
        optimizer = torch.optim.AdamW(self.head.parameters(), lr=self.lr, weight_decay=1e-3, fused=True)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--tiles", type=int, default=1600)
    ap.add_argument("--lr", type=float, default=5e-3)
    args = ap.parse_args()
    L.seed_everything(66)
    with tempfile.TemporaryDirectory() as tmp:
        backbone = pretrained_backbone(os.path.join(tmp, "backbone.pt"))
        train = DataLoader(Tiles(args.tiles, 10), batch_size=args.batch, shuffle=True, drop_last=True)
        val = DataLoader(Tiles(256, 11, train=False), batch_size=args.batch)
        model = Probe(backbone, args.lr)
        trainer = L.Trainer(
            max_epochs=args.epochs, accelerator="cpu", devices=1, default_root_dir=tmp, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, num_sanity_val_steps=0,
        )
        t0 = time.perf_counter()
        trainer.fit(model, train, val)
        fit_s = time.perf_counter() - t0
    print(f"val/acc {trainer.callback_metrics['val/acc']:.3f}")
    steady = model.seconds[10:]
    print("RESULT " + json.dumps({
        "step_s": sum(steady) / len(steady), "fit_s": fit_s, "loss": torch.stack(model.trace[-25:]).mean().item()}))


if __name__ == "__main__":
    main()
