"""DCGAN on 32x32 blobs. Adapted from the usual example."""
import argparse
import json
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batchSize", type=int, default=64)
parser.add_argument("--nz", type=int, default=64, help="size of the latent vector")
parser.add_argument("--ngf", type=int, default=32)
parser.add_argument("--ndf", type=int, default=20)
parser.add_argument("--niter", type=int, default=3, help="epochs")
parser.add_argument("--lr", type=float, default=2e-4)
parser.add_argument("--beta1", type=float, default=0.5)
parser.add_argument("--manualSeed", type=int, default=999)
parser.add_argument("--outf", default=None, help="folder for samples and checkpoints")
opt = parser.parse_args()


class Blobs(Dataset):
    """Coloured Gaussian blobs on a gradient; all drawn beforehand."""

    def __init__(self, n=1600, size=32, seed=0):
        g = torch.Generator().manual_seed(seed)
        ax = torch.linspace(-1, 1, size)
        yy, xx = torch.meshgrid(ax, ax, indexing="ij")
        slope = torch.rand(n, 3, 2, generator=g) - 0.5
        img = slope[..., 0, None, None] * xx + slope[..., 1, None, None] * yy
        for _ in range(3):
            cx, cy = torch.rand(2, n, 1, 1, generator=g) * 1.4 - 0.7
            width = 0.05 + 0.1 * torch.rand(n, 1, 1, generator=g)
            blob = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / width)
            img = img + blob.unsqueeze(1) * (2 * torch.rand(n, 3, 1, 1, generator=g) - 1)
        self.images = img.clamp(-1, 1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i]


def weights_init(m):
    name = m.__class__.__name__
    if name.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif name.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def make_generator(nz, ngf):
    return nn.Sequential(
        nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 4), nn.ReLU(True),
        nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
        nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
        nn.ConvTranspose2d(ngf, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
        nn.Conv2d(ngf, 3, 3, 1, 1, bias=False), nn.Tanh(),
    )


def make_discriminator(ndf):
    return nn.Sequential(
        nn.Conv2d(3, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 4), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False), nn.Flatten(0),
    )


def main():
    torch.manual_seed(opt.manualSeed)
    outf = opt.outf or tempfile.mkdtemp(prefix="dcgan_")
    dataset = Blobs(seed=opt.manualSeed)
    dataloader = DataLoader(dataset, batch_size=opt.batchSize, shuffle=True, drop_last=True)
    netG, netD = make_generator(opt.nz, opt.ngf), make_discriminator(opt.ndf)
    netG.apply(weights_init)
    netD.apply(weights_init)
    optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999), fused=True)
    optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999), fused=True)
    fixed_noise = torch.randn(16, opt.nz, 1, 1)
    real_label = torch.full((opt.batchSize,), 0.9)
    fake_label = torch.zeros(opt.batchSize)
    one_label = torch.ones(opt.batchSize)

    history_d, history_g = [], []
    iters = 0
    t0 = time.perf_counter()
    for epoch in range(opt.niter):
        for i, real in enumerate(dataloader):
            noise = torch.randn(opt.batchSize, opt.nz, 1, 1)
            fake = netG(noise)

            # (1) update D: maximise log(D(x)) + log(1 - D(G(z)))
            optimizerD.zero_grad()
            errD_real = F.binary_cross_entropy_with_logits(netD(real), real_label)
            errD_fake = F.binary_cross_entropy_with_logits(netD(fake.detach()), fake_label)
            errD = errD_real + errD_fake
            errD.backward()
            optimizerD.step()

            # (2) update G: maximise log(D(G(z)))
            optimizerG.zero_grad()
            errG = F.binary_cross_entropy_with_logits(netD(fake), one_label)
            errG.backward()
            optimizerG.step()

            history_d.append(errD.item())
            history_g.append(errG.item())
            if i % 10 == 0:
                print(f"[{epoch}/{opt.niter}][{i}/{len(dataloader)}] "
                      f"Loss_D {history_d[-1]:.4f} Loss_G {history_g[-1]:.4f}")
            iters += 1
            if iters == 10:
                t10 = time.perf_counter()
        with torch.no_grad():
            torch.save(netG(fixed_noise), os.path.join(outf, f"samples_{epoch:03d}.pt"))
    t1 = time.perf_counter()
    torch.save({"G": netG.state_dict(), "D": netD.state_dict()}, os.path.join(outf, "last.pt"))
    print("RESULT " + json.dumps({
        "step_s": (t1 - t10) / (iters - 10),
        "fit_s": t1 - t0,
        "loss": sum(history_d[-20:]) / 20,
    }))


if __name__ == "__main__":
    main()
