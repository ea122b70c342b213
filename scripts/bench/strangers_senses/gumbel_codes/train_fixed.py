"""Discrete codes for gene expression profiles (Gumbel-softmax autoencoder, compiled)."""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

GENES = 400


def profiles(n, seed=12):
    g = torch.Generator().manual_seed(seed)
    programs = torch.randn(24, GENES, generator=g).clamp(min=0)
    use = (torch.rand(n, 24, generator=g) < 0.15).float() * torch.rand(n, 24, generator=g)
    counts = use @ programs + 0.1 * torch.randn(n, GENES, generator=g).abs()
    return torch.log1p(counts)


class CodeBook(nn.Module):
    """Groups of categorical codes with a temperature that falls during training."""

    def __init__(self, groups=12, codes=16, tau=2.0, floor=0.4, rate=0.2):
        super().__init__()
        self.groups, self.codes = groups, codes
        self.tau, self.floor, self.rate = tau, floor, rate
        self.register_buffer("epoch", torch.zeros(()))

    def temperature(self):
        return (self.tau * torch.exp(-self.rate * self.epoch)).clamp(min=self.floor)

    def forward(self, logits):
        logits = logits.view(-1, self.groups, self.codes)
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)))
        soft = F.softmax((logits + noise) / self.temperature(), dim=-1)
        return soft.flatten(1), F.softmax(logits, dim=-1)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


def stack(cin, width, depth, cout):
    body = [Residual(width) for _ in range(depth)]
    return nn.Sequential(nn.Linear(cin, width), *body, nn.LayerNorm(width), nn.Linear(width, cout))


class ProfileAE(nn.Module):
    def __init__(self, width=96, depth=5):
        super().__init__()
        self.book = CodeBook()
        size = self.book.groups * self.book.codes
        self.encoder, self.decoder = stack(GENES, width, depth, size), stack(size, width, depth, GENES)

    def forward(self, x):
        z, q = self.book(self.encoder(x))
        usage = q.mean(0)
        entropy = -(usage * torch.log(usage + 1e-8)).sum(-1).mean()
        return self.decoder(z), entropy


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--cells", type=int, default=5120)
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--entropy", type=float, default=0.01)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--backend", default="aot_eager", help="inductor where the node has a C++ compiler")
    args = ap.parse_args()
    torch.manual_seed(0)
    data = profiles(args.cells)
    model = ProfileAE()
    step_model = torch.compile(model, backend=args.backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    losses, stamps = [], []
    start = time.perf_counter()
    for epoch in range(args.epochs):
        model.book.epoch.fill_(epoch)
        for rows in torch.randperm(len(data)).split(args.batch_size):
            x = data[rows]
            out, entropy = step_model(x)
            loss = F.mse_loss(out, x) - args.entropy * entropy
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            stamps.append(time.perf_counter())
        print(f"epoch {epoch} steps {len(losses)} loss {sum(losses[-20:]) / 20:.4f} "
              f"temperature {model.book.temperature():.3f}", flush=True)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-20:]) / 20,
    }))


if __name__ == "__main__":
    main()
