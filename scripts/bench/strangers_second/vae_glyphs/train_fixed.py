"""Convolutional beta-VAE on procedurally drawn glyphs, with TensorBoard."""
import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.tensorboard import SummaryWriter

CONFIG = {
    "image": {"size": 32, "count": 2048},
    "model": {"latent": 16, "channels": [16, 32, 64], "beta": 0.5},
    "optim": {"lr": 1e-3, "batch": 96, "steps": 72, "warmup_beta": 60},
    "log": {"scalars": 10, "images": 36, "weights": 36, "print": 25},
    "seed": 21,
}


def draw_glyphs(count, size, seed):
    """Strokes (lines, arcs) rendered as soft distance fields."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / (size - 1) * 2 - 1
    images = np.zeros((count, 1, size, size), dtype=np.float32)
    for i in range(count):
        field = np.full((size, size), 9.0, dtype=np.float32)
        for _ in range(rng.integers(1, 4)):
            cx, cy = rng.uniform(-0.5, 0.5, 2)
            if rng.random() < 0.5:
                dist = np.abs(np.hypot(xx - cx, yy - cy) - rng.uniform(0.2, 0.5))
            else:
                a = rng.uniform(0, np.pi)
                along = (xx - cx) * np.cos(a) + (yy - cy) * np.sin(a)
                across = np.abs(-(xx - cx) * np.sin(a) + (yy - cy) * np.cos(a))
                dist = np.maximum(across, np.abs(along) - 0.6)
            field = np.minimum(field, dist)
        images[i, 0] = 1 / (1 + np.exp((field - 0.08) * 40))
    return torch.from_numpy(images)


class Encoder(nn.Module):
    def __init__(self, channels, latent, size):
        super().__init__()
        layers, cin = [], 1
        for c in channels:
            layers += [nn.Conv2d(cin, c, 4, 2, 1), nn.BatchNorm2d(c), nn.LeakyReLU(0.1, inplace=True)]
            cin = c
        self.net = nn.Sequential(*layers, nn.Flatten())
        flat = cin * (size // 2 ** len(channels)) ** 2
        self.mu, self.logvar = nn.Linear(flat, latent), nn.Linear(flat, latent)

    def forward(self, x):
        h = self.net(x)
        return self.mu(h), self.logvar(h)


class Decoder(nn.Module):
    def __init__(self, channels, latent, size):
        super().__init__()
        self.side = size // 2 ** len(channels)
        chain = list(reversed(channels))
        self.top = chain[0]
        self.expand = nn.Linear(latent, self.top * self.side ** 2)
        layers = []
        for a, b in zip(chain, chain[1:] + [chain[-1]]):
            layers += [nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.1, inplace=True)]
        self.net = nn.Sequential(*layers, nn.Conv2d(chain[-1], 1, 3, padding=1))

    def forward(self, z):
        return self.net(self.expand(z).view(-1, self.top, self.side, self.side))


class VAE(nn.Module):
    def __init__(self, channels, latent, size):
        super().__init__()
        self.encoder = Encoder(channels, latent, size)
        self.decoder = Decoder(channels, latent, size)

    def forward(self, x):
        mu, logvar = self.encoder(x)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.decoder(z), mu, logvar


class Monitor:
    """Everything that goes to TensorBoard."""

    def __init__(self, log_dir, every):
        self.writer = SummaryWriter(log_dir)
        self.every = every

    def scalars(self, step, **values):
        if step % self.every["scalars"] == 0:
            for name, value in values.items():
                self.writer.add_scalar(f"train/{name}", value.item(), step)

    def weights(self, step, model):
        if step % self.every["weights"]:
            return
        for name, p in model.named_parameters():
            self.writer.add_histogram(f"weights/{name}", p, step)

    def images(self, step, x, logits):
        if step % self.every["images"] == 0:
            pair = torch.cat([x[:8], torch.sigmoid(logits[:8]).detach()])
            self.writer.add_images("reconstruction", pair, step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log-dir", default=None)
    parser.add_argument("--steps", type=int, default=CONFIG["optim"]["steps"])
    args = parser.parse_args()

    torch.manual_seed(CONFIG["seed"])
    size, m, o = CONFIG["image"]["size"], CONFIG["model"], CONFIG["optim"]
    data = draw_glyphs(CONFIG["image"]["count"], size, CONFIG["seed"])
    model = VAE(m["channels"], m["latent"], size)
    opt = torch.optim.Adam(model.parameters(), lr=o["lr"], fused=True)
    log_dir = args.log_dir or tempfile.mkdtemp(prefix="vae_runs_")
    monitor = Monitor(os.path.join(log_dir, "beta%.1f" % m["beta"]), CONFIG["log"])

    curve, first = [], None
    began = time.perf_counter()
    for step in range(1, args.steps + 1):
        x = data[torch.randint(len(data), (o["batch"],))]
        logits, mu, logvar = model(x)
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum() / len(x)
        loss = rec + m["beta"] * min(1.0, step / o["warmup_beta"]) * kl
        opt.zero_grad()
        loss.backward()
        opt.step()

        monitor.scalars(step, loss=loss, reconstruction=rec, kl=kl)
        monitor.weights(step, model)
        monitor.images(step, x, logits)
        curve.append(loss.item())
        if step % CONFIG["log"]["print"] == 0:
            print(f"[{step:4d}] loss {np.mean(curve[-25:]):8.3f}  rec {rec.item():8.3f}  kl {kl.item():7.3f}")
        if step == 8:
            first = time.perf_counter()
    done = time.perf_counter()
    monitor.writer.close()
    torch.save(model.state_dict(), os.path.join(log_dir, "vae.pt"))
    print("RESULT " + json.dumps({
        "step_s": (done - first) / (args.steps - 8),
        "fit_s": done - began,
        "loss": float(np.mean(curve[-20:])),
    }))


if __name__ == "__main__":
    main()
