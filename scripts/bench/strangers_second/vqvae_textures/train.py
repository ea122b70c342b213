"""VQ-VAE on synthetic textures (van den Oord et al. 2017)."""
import json
import math
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SEED = 90
SIZE = 32
IMAGES = 1280
BATCH = 32
EPOCHS = 3
CODES = 128
DIM = 48
COMMIT = 0.25


def textures(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    grid = torch.linspace(0, 1, size)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    freq = torch.rand(n, 2, 3, generator=g) * 18
    phase = torch.rand(n, 3, generator=g) * 2 * math.pi
    mix = torch.rand(n, 3, 3, generator=g)
    arg = (freq[:, 0, :, None, None] * xx + freq[:, 1, :, None, None] * yy) + phase[..., None, None]
    waves = torch.sin(arg)
    image = torch.einsum("nkc,nkhw->nchw", mix, waves) / 1.5
    return image + 0.03 * torch.randn(image.shape, generator=g)


class ResidualLayer(nn.Module):
    def __init__(self, dim, mid):
        super().__init__()
        self.conv3 = nn.Conv2d(dim, mid, 3, padding=1)
        self.conv1 = nn.Conv2d(mid, dim, 1)

    def forward(self, x):
        return x + self.conv1(F.relu(self.conv3(F.relu(x))))


class VectorQuantizer(nn.Module):
    def __init__(self, codes, dim):
        super().__init__()
        self.embedding = nn.Embedding(codes, dim)
        nn.init.normal_(self.embedding.weight, std=0.5)

    def nearest(self, flat):
        book = self.embedding.weight.detach()
        distance = (flat.detach().unsqueeze(1) - book.unsqueeze(0)).pow(2).sum(-1)
        return distance.argmin(1)

    def forward(self, z):
        z = z.permute(0, 2, 3, 1).contiguous()
        index = self.nearest(z.view(-1, z.shape[-1]))
        quantized = self.embedding(index).view_as(z)
        codebook_loss = F.mse_loss(quantized, z.detach())
        commit_loss = F.mse_loss(z, quantized.detach())
        quantized = z + (quantized - z).detach()
        usage = torch.bincount(index, minlength=self.embedding.num_embeddings).float() / len(index)
        perplexity = torch.exp(-(usage * (usage + 1e-10).log()).sum())
        return quantized.permute(0, 3, 1, 2), codebook_loss + COMMIT * commit_loss, perplexity


class VQVAE(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, hidden // 2, 4, 2, 1), nn.ReLU(inplace=True),
            nn.Conv2d(hidden // 2, hidden, 4, 2, 1), nn.ReLU(inplace=True),
            nn.Conv2d(hidden, hidden, 3, 1, 1),
            ResidualLayer(hidden, 32), ResidualLayer(hidden, 32), nn.ReLU(),
            nn.Conv2d(hidden, DIM, 1), nn.BatchNorm2d(DIM),
        )
        self.vq = VectorQuantizer(CODES, DIM)
        self.decoder = nn.Sequential(
            nn.Conv2d(DIM, hidden, 3, 1, 1),
            ResidualLayer(hidden, 32), ResidualLayer(hidden, 32), nn.ReLU(),
            nn.ConvTranspose2d(hidden, hidden // 2, 4, 2, 1), nn.ReLU(inplace=True),
            nn.ConvTranspose2d(hidden // 2, 3, 4, 2, 1),
        )

    def forward(self, x):
        quantized, vq_loss, perplexity = self.vq(self.encoder(x))
        return self.decoder(quantized), vq_loss, perplexity


class AverageMeter:
    def __init__(self):
        self.values = []

    def add(self, v):
        self.values.append(v)

    def last(self, n):
        recent = self.values[-n:]
        return sum(recent) / len(recent)


def main():
    torch.manual_seed(SEED)
    data = textures(IMAGES, SIZE, SEED)
    variance = data.var().item()
    loader = DataLoader(TensorDataset(data), batch_size=BATCH, shuffle=True, drop_last=True)
    model = VQVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    loss_m, ppl_m = AverageMeter(), AverageMeter()
    best = float("inf")

    with TemporaryDirectory() as tmp:
        step = 0
        t_begin = time.perf_counter()
        for epoch in range(EPOCHS):
            for (x,) in loader:
                recon, vq_loss, perplexity = model(x)
                loss = F.mse_loss(recon, x) / variance + vq_loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                loss_m.add(loss.item())
                ppl_m.add(perplexity.item())
                if step == 10:
                    t_mark = time.perf_counter()
            mean = loss_m.last(len(loader))
            print(f"epoch {epoch} | loss {mean:.4f} | perplexity {ppl_m.last(len(loader)):.1f}", flush=True)
            if mean < best:
                best = mean
                torch.save({"model": model.state_dict(), "epoch": epoch}, Path(tmp) / "best.pt")
        t_end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (t_end - t_mark) / (step - 10),
        "fit_s": t_end - t_begin,
        "loss": loss_m.last(30),
    }))


if __name__ == "__main__":
    main()
