"""Decoder-only language model over SMILES-like strings (packed into fixed blocks)."""
import argparse
import json
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ALPHABET = "\n()=#123456[]+-BCNOFPSIclnos@H"


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=240)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--block", type=int, default=320)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--eval-every", type=int, default=120)
    p.add_argument("--seed", type=int, default=29)
    return p.parse_args()


def random_molecule(rng):
    out, depth, ring = [], 0, False
    for _ in range(int(rng.integers(12, 50))):
        r = rng.random()
        if r < 0.6:
            out.append("CCCCNOScc"[int(rng.integers(9))])
        elif r < 0.7 and out and out[-1] not in "(=#":
            out.append("(C")
            depth += 1
        elif r < 0.8 and depth:
            out.append("C)")
            depth -= 1
        elif r < 0.88 and out:
            out.append("=O" if rng.random() < 0.5 else "=C")
        elif not ring:
            out.append("c1ccccc1" if rng.random() < 0.7 else "C1CCNCC1")
            ring = True
    return "".join(out) + "C)" * depth


def build_corpus(seed, molecules=6000):
    rng = np.random.default_rng(seed)
    text = "\n".join(random_molecule(rng) for _ in range(molecules))
    table = np.zeros(128, dtype=np.int64)
    for i, ch in enumerate(ALPHABET):
        table[ord(ch)] = i
    return torch.from_numpy(table[np.frombuffer(text.encode(), dtype=np.uint8)])


def get_batch(data, args, generator):
    starts = torch.randint(len(data) - args.block - 1, (args.batch_size,), generator=generator)
    window = data[starts[:, None] + torch.arange(args.block + 1)]
    return window[:, :-1], window[:, 1:]


class CausalSelfAttention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads = args.heads
        self.qkv = nn.Linear(args.dim, 3 * args.dim)
        self.proj = nn.Linear(args.dim, args.dim)
        mask = torch.tril(torch.ones(args.block, args.block, dtype=torch.bool))
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Layer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(args.dim), nn.LayerNorm(args.dim)
        self.attn = CausalSelfAttention(args)
        self.mlp = nn.Sequential(nn.Linear(args.dim, 4 * args.dim), nn.GELU(), nn.Linear(4 * args.dim, args.dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class MolGPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tok = nn.Embedding(len(ALPHABET), args.dim)
        self.pos = nn.Embedding(args.block, args.dim)
        self.layers = nn.Sequential(*[Layer(args) for _ in range(args.layers)])
        self.norm = nn.LayerNorm(args.dim)
        self.head = nn.Linear(args.dim, len(ALPHABET), bias=False)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, ids, targets):
        x = self.tok(ids) + self.pos.weight[: ids.size(1)]
        logits = self.head(self.norm(self.layers(x)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model, data, args, batches=6):
    model.eval()
    g = torch.Generator().manual_seed(0)
    loss = np.mean([model(*get_batch(data, args, g)).item() for _ in range(batches)])
    model.train()
    return float(loss)


def main():
    t0 = time.perf_counter()
    args = get_args()
    torch.manual_seed(args.seed)
    data = build_corpus(args.seed)
    cut = int(0.9 * len(data))
    train, val = data[:cut], data[cut:]
    model = MolGPT(args)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, {len(train)} tokens")
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    warm = lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * s / args.steps))
    sched = torch.optim.lr_scheduler.LambdaLR(opt, warm)
    g = torch.Generator().manual_seed(args.seed)
    out = tempfile.mkdtemp(prefix="molgpt_")
    losses, times = [], []
    for step in range(1, args.steps + 1):
        t = time.perf_counter()
        loss = model(*get_batch(train, args, g))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - t)
        if step % 10 == 0:
            print(f"step {step} loss {np.mean(losses[-10:]):.4f}", flush=True)
        if step % args.eval_every == 0:
            print(f"step {step} val loss {evaluate(model, val, args):.4f}", flush=True)
            torch.save(model.state_dict(), os.path.join(out, "ckpt.pt"))
    print("RESULT " + json.dumps({"step_s": float(np.median(times)),
                                  "fit_s": time.perf_counter() - t0,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
