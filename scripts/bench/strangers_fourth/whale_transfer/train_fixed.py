"""Transfer learning for whale calls: spectrogram backbone from the lab's checkpoint, new linear head."""
import argparse
import json
import time

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SPECIES = ["humpback", "orca", "fin", "minke", "sperm", "beluga", "right", "sei"]


def call_spectrograms(n, mels, frames, seed):
    gen = torch.Generator().manual_seed(seed)
    label = torch.randint(len(SPECIES), (n,), generator=gen)
    t = torch.linspace(0, 1, frames)
    base = 8 + 5.5 * label[:, None] + 1.5 * torch.randn(n, 1, generator=gen)
    slope = (label[:, None] % 3 - 1.0) * 10
    centre = base + slope * (t - 0.5) + 3 * torch.sin(2 * torch.pi * (1 + label[:, None] % 4) * t)
    bins = torch.arange(mels).view(1, mels, 1)
    spec = torch.exp(-((bins - centre[:, None, :]) ** 2) / 6)
    spec = spec + 0.25 * torch.randn(n, mels, frames, generator=gen).abs()
    return spec.unsqueeze(1), label


class Backbone(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layers, cin = [], 1
        for mult, stride in [(1, 2), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)]:
            cout = width * mult
            layers += [nn.Conv2d(cin, cout, 3, stride, 1), nn.GroupNorm(8, cout), nn.ReLU(inplace=True)]
            cin = cout
        self.layers = nn.Sequential(*layers)
        self.out_features = cin * 8

    def forward(self, x):
        return F.adaptive_avg_pool2d(self.layers(x), (8, 1)).flatten(1)


def load_backbone(path):
    backbone = Backbone()
    if path:
        backbone.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    else:  # no checkpoint at hand: random filters do for a demonstration
        for m in backbone.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.orthogonal_(m.weight, gain=1.4)
    return backbone.eval()


class WhaleClassifier(L.LightningModule):
    def __init__(self, backbone, lr):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.LayerNorm(backbone.out_features), nn.Linear(backbone.out_features, len(SPECIES)))
        self.lr = lr

    def forward(self, spec):
        with torch.no_grad():
            features = self.backbone(spec)
        return self.head(features)

    def training_step(self, batch, _):
        spec, label = batch
        logits = self(spec)
        loss = F.cross_entropy(logits, label)
        self.log("loss", loss, prog_bar=True)
        self.log("acc", (logits.argmax(1) == label).float().mean(), prog_bar=True)
        return loss

    def configure_optimizers(self):
        # the backbone stays as it is
        return torch.optim.Adam(self.head.parameters(), lr=self.lr)


class Report(L.Callback):
    def __init__(self):
        self.stamps, self.losses = [], []

    def on_fit_start(self, trainer, pl_module):
        self.begin = time.perf_counter()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.stamps.append(time.perf_counter())
        self.losses.append(outputs["loss"].item())
        if batch_idx % 10 == 0:
            print(f"epoch {trainer.current_epoch} batch {batch_idx} loss {self.losses[-1]:.4f}", flush=True)

    def on_fit_end(self, trainer, pl_module):
        n = len(self.stamps)
        print("RESULT " + json.dumps({
            "step_s": (self.stamps[-1] - self.stamps[4]) / (n - 5),
            "fit_s": time.perf_counter() - self.begin,
            "loss": sum(self.losses[-10:]) / 10,
        }), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backbone", default=None, help="state dict of the backbone")
    parser.add_argument("--calls", type=int, default=1600)
    parser.add_argument("--mels", type=int, default=64)
    parser.add_argument("--frames", type=int, default=96)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    L.seed_everything(8)
    data = TensorDataset(*call_spectrograms(args.calls, args.mels, args.frames, seed=8))
    loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Report()],
    )
    trainer.fit(WhaleClassifier(load_backbone(args.backbone), args.lr), loader)


if __name__ == "__main__":
    main()
