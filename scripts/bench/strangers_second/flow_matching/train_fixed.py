"""Conditional flow matching on point clouds of a toy manifold, weights averaged (EMA)."""
import argparse
import copy
import json
import math
import tempfile
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

DIM = 24


def manifold(n, seed):
    """Rings of several radii, lifted into DIM dimensions by a fixed rotation."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(5, (n,), generator=g)
    angle = torch.rand(n, generator=g) * 2 * math.pi
    radius = 0.5 + 0.5 * kind.float()
    core = torch.stack([radius * angle.cos(), radius * angle.sin(), (3 * angle).sin() * 0.3, radius - 1.5], 1)
    lift = torch.linalg.qr(torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(0)))[0][:4]
    return core @ lift + 0.02 * torch.randn(n, DIM, generator=g), kind


class ResidualMLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, width)
        self.mod = nn.Linear(128, width)

    def forward(self, x, c):
        return x + self.fc2(F.silu(self.fc1(self.norm(x)) + self.mod(c)))


class VelocityNet(nn.Module):
    def __init__(self, width, depth, classes=5):
        super().__init__()
        self.enter = nn.Linear(DIM, width)
        self.kind = nn.Embedding(classes, 64)
        self.cond = nn.Sequential(nn.Linear(128, 128), nn.SiLU())
        self.blocks = nn.ModuleList([ResidualMLP(width) for _ in range(depth)])
        self.leave = nn.Linear(width, DIM)
        self.register_buffer("freq", torch.exp(torch.linspace(0, 5, 32)))

    def forward(self, x, t, kind):
        arg = t[:, None] * self.freq
        c = self.cond(torch.cat([arg.sin(), arg.cos(), self.kind(kind)], 1))
        h = self.enter(x)
        for block in self.blocks:
            h = block(h, c)
        return self.leave(h)


class EMACallback(L.Callback):
    """Keeps a running average of the weights and validates with it."""

    def __init__(self, decay=0.995):
        self.decay = decay

    def on_fit_start(self, trainer, pl_module):
        self.ema = copy.deepcopy(pl_module.net).requires_grad_(False)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        with torch.no_grad():
            torch._foreach_lerp_(list(self.ema.parameters()), list(pl_module.net.parameters()), 1 - self.decay)

    def on_validation_start(self, trainer, pl_module):
        self.online, pl_module.net = pl_module.net, self.ema

    def on_validation_end(self, trainer, pl_module):
        pl_module.net = self.online

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        checkpoint["ema"] = self.ema.state_dict()


class StepTimer(L.Callback):
    def __init__(self):
        self.spans = []

    def on_train_epoch_start(self, *_):
        self.mark = time.perf_counter()

    def on_train_batch_end(self, *_):
        now = time.perf_counter()
        self.spans.append(now - self.mark)
        self.mark = now

    def mean(self, skip=10):
        rest = self.spans[skip:]
        return sum(rest) / len(rest)


class FlowMatching(L.LightningModule):
    def __init__(self, width=768, depth=6, lr=5e-4):
        super().__init__()
        self.save_hyperparameters()
        self.net = VelocityNet(width, depth)
        self.losses = []

    def objective(self, batch):
        x1, kind = batch
        x0, t = torch.randn_like(x1), torch.rand(len(x1), device=x1.device)
        xt = torch.lerp(x0, x1, t[:, None])
        return F.mse_loss(self.net(xt, t, kind), x1 - x0)

    def training_step(self, batch, _):
        loss = self.objective(batch)
        self.log("train/loss", loss)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch, _):
        self.log("val/loss", self.objective(batch))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2, fused=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--decay", type=float, default=0.98)
    args = p.parse_args()
    L.seed_everything(31)
    train = DataLoader(TensorDataset(*manifold(2560, 1)), batch_size=args.batch, shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(*manifold(512, 2)), batch_size=256)
    model, timer = FlowMatching(), StepTimer()
    with tempfile.TemporaryDirectory() as tmp:
        trainer = L.Trainer(
            max_steps=args.steps, accelerator="cpu", devices=1, gradient_clip_val=1.0,
            logger=CSVLogger(tmp), log_every_n_steps=25, num_sanity_val_steps=0,
            callbacks=[EMACallback(args.decay), timer], enable_progress_bar=False,
        )
        began = time.perf_counter()
        trainer.fit(model, train, val)
        fit_s = time.perf_counter() - began
    print("val/loss with EMA weights:", round(trainer.callback_metrics["val/loss"].item(), 5))
    print("RESULT " + json.dumps({
        "step_s": timer.mean(), "fit_s": fit_s, "loss": torch.stack(model.losses[-30:]).mean().item()}))


if __name__ == "__main__":
    main()
