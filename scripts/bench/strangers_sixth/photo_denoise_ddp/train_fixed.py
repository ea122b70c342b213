"""Residual denoising CNN for grayscale photographs, trained on patches with two processes."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    image_size: int = 192
    n_train_images: int = 40
    n_val_images: int = 96
    patches_per_image: int = 4
    patch: int = 48
    width: int = 24
    depth: int = 4
    sigma: float = 0.1
    batch_size: int = 4
    epochs: int = 8
    lr: float = 2e-3
    log_every: int = 20
    seed: int = 3


def render_photos(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 1, 12, 12, generator=g)
    fine = torch.rand(n, 1, 48, 48, generator=g)
    img = F.interpolate(coarse, size=size, mode="bicubic") + 0.3 * F.interpolate(fine, size=size, mode="bilinear")
    return (img / 1.3).clamp(0, 1)


class PatchDataset(Dataset):
    def __init__(self, photos, cfg):
        self.photos, self.cfg, self.epoch = photos, cfg, 0

    def __len__(self):
        return len(self.photos) * self.cfg.patches_per_image

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(self.epoch * 100_003 + idx)
        limit = self.cfg.image_size - self.cfg.patch + 1
        top, left = torch.randint(0, limit, (2,), generator=g).tolist()
        clean = self.photos[idx % len(self.photos), :, top:top + self.cfg.patch, left:left + self.cfg.patch]
        return clean + self.cfg.sigma * torch.randn(clean.shape, generator=g), clean


class PhotoDataset(Dataset):
    def __init__(self, photos, cfg):
        g = torch.Generator().manual_seed(cfg.seed)
        self.clean = photos
        self.noisy = photos + cfg.sigma * torch.randn(photos.shape, generator=g)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, idx):
        return self.noisy[idx], self.clean[idx]


class DenoiseNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        layers = [nn.Conv2d(1, cfg.width, 3, padding=1), nn.ReLU(inplace=True)]
        for _ in range(cfg.depth - 2):
            layers += [nn.Conv2d(cfg.width, cfg.width, 3, padding=1), nn.ReLU(inplace=True)]
        layers += [nn.Conv2d(cfg.width, 1, 3, padding=1)]
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return x - self.net(x)


@torch.inference_mode()
def mean_psnr(net, loader):
    net.eval()
    stats = torch.zeros(2, dtype=torch.float64)
    for noisy, clean in loader:
        mse = F.mse_loss(net(noisy).clamp(0, 1), clean, reduction="none").mean(dim=(1, 2, 3))
        stats += torch.stack([(-10 * mse.log10()).sum().double(), torch.tensor(float(len(clean))).double()])
    dist.all_reduce(stats)
    net.train()
    return (stats[0] / stats[1]).item()


def main():
    t_start = time.perf_counter()
    cfg = Config()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(cfg.seed)
    train_ds = PatchDataset(render_photos(cfg.n_train_images, cfg.image_size, 1), cfg)
    val_ds = PhotoDataset(render_photos(cfg.n_val_images, cfg.image_size, 2), cfg)
    sampler = DistributedSampler(train_ds, shuffle=True, seed=cfg.seed, drop_last=True)
    train_loader = DataLoader(train_ds, cfg.batch_size, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val_ds, 2, sampler=DistributedSampler(val_ds, shuffle=False))

    model = DDP(DenoiseNet(cfg), gradient_as_bucket_view=True)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs * len(train_loader))
    workdir = tempfile.TemporaryDirectory()
    best = float("-inf")

    losses, step_times = [], []
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        train_ds.epoch = epoch
        t_last = time.perf_counter()
        for noisy, clean in train_loader:
            loss = F.mse_loss(model(noisy), clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
            now = time.perf_counter()
            step_times.append(now - t_last)
            t_last = now
            if rank == 0 and len(losses) % cfg.log_every == 0:
                print(f"epoch {epoch} step {len(losses)} mse {losses[-1]:.5f}", flush=True)

        psnr = mean_psnr(model.module, val_loader)
        if rank == 0:
            print(f"epoch {epoch} validation psnr {psnr:.3f} dB", flush=True)
            if psnr > best:
                best = psnr
                torch.save(model.module.state_dict(), os.path.join(workdir.name, "best.pt"))

    workdir.cleanup()
    if rank == 0:
        print("RESULT " + json.dumps({
            "step_s": statistics.median(step_times),
            "fit_s": time.perf_counter() - t_start,
            "loss": sum(losses[-10:]) / 10,
        }), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "LOCAL_RANK" not in os.environ:
        sys.exit(subprocess.call([sys.executable, "-m", "torch.distributed.run", "--standalone",
                                  "--nproc_per_node", "2", os.path.abspath(__file__)]))
    main()
