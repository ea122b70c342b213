"""Adapting a handwriting line model to a new writer with bottleneck adapters, Lightning."""
import json
import tempfile
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

LETTERS = 40
FRAMES = 48


def write_lines(n, seed=6):
    """Slices of a line image (one per frame), one letter each, in the slanted style of one writer."""
    g = torch.Generator().manual_seed(seed)
    glyphs = torch.randn(LETTERS, 64, generator=g)
    slant = torch.eye(64) + 0.3 * torch.randn(64, 64, generator=g) / 8
    letters = torch.randint(LETTERS, (n, FRAMES), generator=g)
    frames = glyphs[letters] @ slant + 0.7 * torch.randn(n, FRAMES, 64, generator=g)
    return frames, letters


class Adapter(nn.Module):
    def __init__(self, dim, rank=8):
        super().__init__()
        self.down, self.up = nn.Linear(dim, rank), nn.Linear(rank, dim)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return x + self.up(F.gelu(self.down(x)))


class MixerBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.Conv1d(dim, dim, 3, padding=1)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.adapter = Adapter(dim)

    def forward(self, x):
        x = x + self.mix(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return self.adapter(x + self.mlp(self.n2(x)))


class LineModel(L.LightningModule):
    def __init__(self, dim=192, depth=4, lr=3e-3):
        super().__init__()
        self.lr = lr
        self.stem = nn.Linear(64, dim)
        self.stem_adapter = Adapter(dim)
        self.blocks = nn.ModuleList(MixerBlock(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, LETTERS)
        self.losses, self.stamps = [], []

    def forward(self, x):
        x = self.stem_adapter(self.stem(x))
        for blk in self.blocks:
            x = blk(x)
        return self.classifier(self.norm(x))

    def training_step(self, batch, batch_idx):
        frames, letters = batch
        loss = F.cross_entropy(self(frames).flatten(0, 1), letters.flatten())
        self.log("loss", loss)
        self.losses.append(loss.detach())
        return loss

    def on_train_batch_end(self, *args):
        self.stamps.append(time.perf_counter())

    def configure_optimizers(self):
        for name, p in self.named_parameters():
            p.requires_grad_("adapter" in name or name.startswith("classifier"))
        chosen = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.AdamW(chosen, lr=self.lr, weight_decay=0.0)


def main():
    L.seed_everything(9)
    loader = DataLoader(TensorDataset(*write_lines(800)), batch_size=16, shuffle=True, drop_last=True)
    model = LineModel()
    with tempfile.TemporaryDirectory() as tmp:
        trainer = L.Trainer(max_epochs=2, accelerator="cpu", devices=1, logger=CSVLogger(tmp), log_every_n_steps=20,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        start = time.perf_counter()
        trainer.fit(model, loader)
        fit_s = time.perf_counter() - start
    loss = float(torch.stack(model.losses[-20:]).mean())
    print(f"steps {len(model.stamps)} loss {loss:.4f}")
    print("RESULT " + json.dumps({
        "step_s": (model.stamps[-1] - model.stamps[9]) / (len(model.stamps) - 10),
        "fit_s": fit_s,
        "loss": loss,
    }))


if __name__ == "__main__":
    main()
