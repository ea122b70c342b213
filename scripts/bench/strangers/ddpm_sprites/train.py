"""Denoising diffusion on 16x16 sprites with a small UNet and EMA weights (Lightning)."""
import copy
import json
import math
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SEED = 12
N = 2112
BATCH = 32
EPOCHS = 4
TIMESTEPS = 200


def make_sprites():
    g = torch.Generator().manual_seed(SEED)
    half = (torch.rand(N, 3, 8, 4, generator=g) < 0.4).float()
    full = torch.cat([half, half.flip(-1)], dim=-1)
    return F.interpolate(full, size=16, mode="nearest") * 2 - 1


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x))) + self.emb(e)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, c=16, emb=64):
        super().__init__()
        freqs = torch.exp(-math.log(1000) * torch.arange(emb // 2) / (emb // 2))
        self.register_buffer("freqs", freqs)
        self.time = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb), nn.SiLU())
        self.inp = nn.Conv2d(3, c, 3, padding=1)
        self.down1 = ResBlock(c, c, emb)
        self.down2 = ResBlock(c, 2 * c, emb)
        self.mid = ResBlock(2 * c, 2 * c, emb)
        self.up1 = ResBlock(4 * c, c, emb)
        self.up2 = ResBlock(2 * c, c, emb)
        self.out = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x, t):
        a = t[:, None] * self.freqs
        e = self.time(torch.cat([a.sin(), a.cos()], dim=1))
        h1 = self.down1(self.inp(x), e)
        h2 = self.down2(F.avg_pool2d(h1, 2), e)
        m = self.mid(F.avg_pool2d(h2, 2), e)
        u = self.up1(torch.cat([F.interpolate(m, scale_factor=2.0), h2], dim=1), e)
        u = self.up2(torch.cat([F.interpolate(u, scale_factor=2.0), h1], dim=1), e)
        return self.out(F.silu(u))


class DDPM(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = UNet()
        self.ema = copy.deepcopy(self.net).requires_grad_(False).eval()
        alpha_bar = torch.cumprod(1 - torch.linspace(1e-4, 0.04, TIMESTEPS), 0)
        self.register_buffer("signal", alpha_bar.sqrt())
        self.register_buffer("noise", (1 - alpha_bar).sqrt())

    def training_step(self, batch, batch_idx):
        (x0,) = batch
        t = torch.randint(TIMESTEPS, (len(x0),), device=x0.device)
        eps = torch.randn_like(x0)
        xt = self.signal[t][:, None, None, None] * x0 + self.noise[t][:, None, None, None] * eps
        loss = F.mse_loss(self.net(xt, t.float()), eps)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        with torch.no_grad():
            torch._foreach_lerp_(list(self.ema.parameters()), list(self.net.parameters()), 0.005)

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} loss {self.trainer.callback_metrics['loss']:.4f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.net.parameters(), lr=1e-3)


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
    loader = DataLoader(
        TensorDataset(make_sprites()), batch_size=BATCH, shuffle=True, drop_last=True,
        generator=torch.Generator().manual_seed(SEED),
    )
    model = DDPM()
    clock = StepClock()
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=1, logger=False, callbacks=[clock],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    start = time.perf_counter()
    trainer.fit(model, loader)
    print("RESULT " + json.dumps(clock.result(time.perf_counter() - start)))


if __name__ == "__main__":
    main()
