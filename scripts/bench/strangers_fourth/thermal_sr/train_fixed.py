"""
SRGAN for thermal camera frames (x2), generator pretrained with L1 for a few steps, then adversarial.
Loosely after https://arxiv.org/abs/1609.04802
"""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResidualBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.act = nn.PReLU(ch)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(self.act(self.conv1(x)))


class Generator(nn.Module):
    def __init__(self, ch=48, n_blocks=6):
        super().__init__()
        self.head = nn.Conv2d(1, ch, 5, padding=2)
        self.blocks = nn.Sequential(*[ResidualBlock(ch) for _ in range(n_blocks)])
        self.tail = nn.Sequential(nn.Conv2d(ch, 4 * 16, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(16),
                                  nn.Conv2d(16, 1, 5, padding=2))

    def forward(self, x):
        h = self.head(x)
        up = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return up + self.tail(h + self.blocks(h))


class Discriminator(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, ch, 3, stride=2, padding=1), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ch, 2 * ch, 3, stride=2, padding=1), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * ch, 4 * ch, 3, stride=2, padding=1), nn.LeakyReLU(0.2, inplace=True),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16 * ch, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def thermal_frames(n, size):
    """Warm blobs over a slow background gradient, as in the drone recordings."""
    axis = torch.linspace(-1, 1, size)
    frames = 0.2 * torch.randn(n, 1, 1, 1) * axis.view(1, 1, size, 1) + 0.3
    for _ in range(6):
        cx, cy = torch.rand(2, n, 1, 1, 1) * 2 - 1
        width = 0.02 + 0.15 * torch.rand(n, 1, 1, 1)
        dist = (axis.view(1, 1, size, 1) - cy) ** 2 + (axis.view(1, 1, 1, size) - cx) ** 2
        frames = frames + 0.6 * torch.rand(n, 1, 1, 1) * torch.sigmoid((width - dist) * 60)
    return frames, F.avg_pool2d(frames, 2) + 0.01 * torch.randn(n, 1, size // 2, size // 2)


class Trainer:
    def __init__(self, opt):
        self.opt = opt
        self.G, self.D = Generator(opt.channels), Discriminator()
        self.optim_G = torch.optim.Adam(self.G.parameters(), lr=opt.lr, betas=(0.9, 0.99))
        self.optim_D = torch.optim.Adam(self.D.parameters(), lr=opt.lr / 4, betas=(0.5, 0.99))

    def update_D(self, real, fake):
        p_real, p_fake = self.D(real), self.D(fake.detach())
        loss = F.softplus(-p_real).mean() + F.softplus(p_fake).mean()
        self.optim_D.zero_grad()
        loss.backward()
        self.optim_D.step()
        return loss.item()

    def update_G(self, real, fake, weight):
        pixel = F.l1_loss(fake, real)
        loss = pixel
        if weight > 0:
            loss = loss + weight * F.softplus(-self.D(fake)).mean()
        self.optim_G.zero_grad()
        loss.backward()
        self.optim_G.step()
        return pixel.item()

    def step(self, low, high, adversarial):
        fake = self.G(low)
        d_loss = self.update_D(high, fake) if adversarial else float("nan")
        return self.update_G(high, fake, self.opt.adv_weight if adversarial else 0.0), d_loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=256)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--channels", type=int, default=48)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--n_iter", type=int, default=80)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--adv_weight", type=float, default=1e-3)
    parser.add_argument("--lr", type=float, default=8e-4)
    parser.add_argument("--seed", type=int, default=2020)
    opt = parser.parse_args()

    torch.manual_seed(opt.seed)
    high, low = thermal_frames(opt.frames, opt.size)
    trainer = Trainer(opt)

    history, clock = [], []
    t0 = time.perf_counter()
    for it in range(1, opt.n_iter + 1):
        idx = torch.randperm(opt.frames)[: opt.batch_size]
        pixel, d_loss = trainer.step(low[idx], high[idx], adversarial=it > opt.warmup)
        history.append(pixel)
        clock.append(time.perf_counter())
        if it % 20 == 0:
            print("iter %4d  L1 %.4f  D %.4f" % (it, pixel, d_loss), flush=True)

    skip = opt.warmup + 2
    print("RESULT " + json.dumps({
        "step_s": (clock[-1] - clock[skip]) / (len(clock) - skip - 1),
        "fit_s": time.perf_counter() - t0,
        "loss": sum(history[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
