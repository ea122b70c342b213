"""Next-chord language model: a small causal transformer trained on transposed chord progressions."""
import json
import math
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    n_songs: int = 1500
    song_len: int = 96
    vocab: int = 12 * 7
    context: int = 64
    dim: int = 160
    heads: int = 5
    layers: int = 3
    batch_size: int = 16
    steps: int = 220
    warmup: int = 20
    lr: float = 1e-3
    weight_decay: float = 0.05
    eval_every: int = 110
    eval_batches: int = 6
    log_every: int = 20
    seed: int = 23


def compose(cfg):
    rng = np.random.default_rng(cfg.seed)
    moves = rng.dirichlet(np.full(cfg.vocab, 0.05), size=7)
    songs = np.empty((cfg.n_songs, cfg.song_len), dtype=np.uint8)
    state = rng.integers(0, cfg.vocab, cfg.n_songs)
    cumulative = moves.cumsum(axis=1)
    for t in range(cfg.song_len):
        songs[:, t] = state
        draw = rng.random(cfg.n_songs)
        step = (draw[:, None] > cumulative[state // 12]).sum(axis=1)
        state = (state + step) % cfg.vocab
    return songs


class ProgressionSampler:
    def __init__(self, songs, cfg, seed):
        self.songs = torch.from_numpy(songs.astype(np.int64))
        self.offsets = torch.arange(cfg.context + 1)
        self.last_start = cfg.song_len - cfg.context - 1
        self.batch_size = cfg.batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self):
        rows = torch.randint(len(self.songs), (self.batch_size, 1), generator=self.generator)
        starts = torch.randint(self.last_start + 1, (self.batch_size, 1), generator=self.generator)
        window = self.songs[rows, starts + self.offsets]
        key = torch.randint(12, (self.batch_size, 1), generator=self.generator)
        window = window // 12 * 12 + (window % 12 + key) % 12
        return window[:, :-1], window[:, 1:]


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1 = nn.LayerNorm(cfg.dim)
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.proj = nn.Linear(cfg.dim, cfg.dim)
        self.norm2 = nn.LayerNorm(cfg.dim)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, 4 * cfg.dim), nn.GELU(), nn.Linear(4 * cfg.dim, cfg.dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class ChordModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg.vocab, cfg.dim)
        self.positions = nn.Parameter(torch.randn(cfg.context, cfg.dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(cfg) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, ids):
        h = self.tokens(ids) + self.positions[: ids.shape[1]]
        return self.head(self.norm(self.blocks(h)))


def learning_rate(step, cfg):
    if step < cfg.warmup:
        return (step + 1) / cfg.warmup
    progress = (step - cfg.warmup) / (cfg.steps - cfg.warmup)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))


@torch.no_grad()
def evaluate(model, songs, cfg):
    model.eval()
    sampler = ProgressionSampler(songs, cfg, cfg.seed + 100)
    total = 0.0
    for _ in range(cfg.eval_batches):
        x, y = sampler.batch()
        total += F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    model.train()
    return total / cfg.eval_batches


def main():
    t0 = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    songs = compose(cfg)
    n_val = cfg.n_songs // 10
    train_songs, val_songs = songs[n_val:], songs[:n_val]
    sampler = ProgressionSampler(train_songs, cfg, cfg.seed)

    model = ChordModel(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: learning_rate(s, cfg))

    losses, ends = [], []
    with tempfile.TemporaryDirectory() as tmp:
        for step in range(1, cfg.steps + 1):
            x, y = sampler.batch()
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            ends.append(time.perf_counter())
            if step % cfg.log_every == 0:
                print(f"step {step} loss {np.mean(losses[-cfg.log_every:]):.4f} lr {scheduler.get_last_lr()[0]:.2e}", flush=True)
            if step % cfg.eval_every == 0:
                print(f"step {step} val loss {evaluate(model, val_songs, cfg):.4f}", flush=True)
                torch.save(model.state_dict(), os.path.join(tmp, f"chords_{step}.pt"))

    print("RESULT " + json.dumps({
        "step_s": float(np.median(np.diff(ends))),
        "fit_s": time.perf_counter() - t0,
        "loss": float(np.mean(losses[-10:])),
    }))


if __name__ == "__main__":
    main()
