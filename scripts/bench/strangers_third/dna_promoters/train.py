"""Promoter recognition in DNA with linear attention (Katharopoulos et al., elu + 1 features)."""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--sequences", type=int, default=1600)
    p.add_argument("--length", type=int, default=384)
    p.add_argument("--batch", type=int, default=6)
    p.add_argument("--steps", type=int, default=75)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=21)
    return p.parse_args()


def make_sequences(n, length):
    bases = torch.randint(4, (n, length))
    label = torch.randint(2, (n,))
    motif = torch.tensor([3, 0, 3, 0, 0, 0, 3, 0])
    for i in label.nonzero().flatten().tolist():
        for _ in range(6):
            at = int(torch.randint(length - len(motif), ()))
            bases[i, at:at + len(motif)] = motif
    return bases, label


class LinearAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        weight = q @ k.transpose(-2, -1)
        norm = weight.sum(-1, keepdim=True)
        y = (weight @ v) / norm
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = LinearAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PromoterNet(nn.Module):
    def __init__(self, length, dim=64, heads=4, depth=2):
        super().__init__()
        self.base = nn.Embedding(4, dim)
        self.kmer = nn.Conv1d(dim, dim, 9, padding=4)
        self.position = nn.Parameter(0.02 * torch.randn(length, dim))
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.head = nn.Linear(dim, 2)

    def forward(self, bases):
        x = self.kmer(self.base(bases).transpose(1, 2)).transpose(1, 2) + self.position
        return self.head(self.blocks(x).amax(1))


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    bases, label = make_sequences(args.sequences, args.length)
    model = PromoterNet(args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)

    stamps, losses = [], []
    start = time.perf_counter()
    for step in range(args.steps):
        pick = torch.randint(args.sequences, (args.batch,))
        loss = F.cross_entropy(model(bases[pick]), label[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        stamps.append(time.perf_counter())
        if step % 20 == 0:
            print(f"step {step} loss {losses[-1]:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
