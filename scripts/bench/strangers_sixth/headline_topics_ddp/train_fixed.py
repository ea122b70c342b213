"""Topic classification of news headlines, data parallel on two processes."""
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    vocab_size: int = 10000
    seq_len: int = 16
    n_topics: int = 24
    d_model: int = 256
    n_heads: int = 4
    n_layers: int = 1
    n_train: int = 5120
    n_val: int = 256
    micro_batch: int = 4
    accum_steps: int = 4
    epochs: int = 1
    lr: float = 1e-3
    warmup: int = 10
    grad_clip: float = 1.0
    log_every: int = 20
    seed: int = 1


class Headlines(Dataset):
    def __init__(self, cfg, n, seed):
        rng = np.random.default_rng(seed)
        topic = rng.integers(0, cfg.n_topics, n)
        tokens = rng.zipf(1.25, size=(n, cfg.seq_len)) % cfg.vocab_size
        keyword = 100 + 40 * topic[:, None] + rng.integers(0, 12, tokens.shape)
        tokens = np.where(rng.random(tokens.shape) < 0.3, keyword, tokens)
        self.tokens = torch.from_numpy(tokens.astype(np.int64))
        self.topic = torch.from_numpy(topic)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.topic[i]


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_heads = cfg.n_heads
        self.norm1 = nn.LayerNorm(cfg.d_model)
        self.qkv = nn.Linear(cfg.d_model, 3 * cfg.d_model)
        self.proj = nn.Linear(cfg.d_model, cfg.d_model)
        self.norm2 = nn.LayerNorm(cfg.d_model)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.d_model, 4 * cfg.d_model), nn.GELU(), nn.Linear(4 * cfg.d_model, cfg.d_model)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.n_heads, c // self.n_heads).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(att.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class HeadlineClassifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab_size, cfg.d_model)
        self.pos = nn.Embedding(cfg.seq_len, cfg.d_model)
        self.blocks = nn.Sequential(*[Block(cfg) for _ in range(cfg.n_layers)])
        self.norm = nn.LayerNorm(cfg.d_model)
        self.head = nn.Linear(cfg.d_model, cfg.n_topics)
        nn.init.normal_(self.tok.weight, std=0.1)
        nn.init.normal_(self.pos.weight, std=0.02)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    stats = torch.zeros(2)
    for x, y in loader:
        stats += torch.tensor([(model.module(x).argmax(1) == y).sum().item(), len(x)])
    dist.all_reduce(stats)
    model.train()
    return (stats[0] / stats[1]).item()


def main():
    t_start = time.perf_counter()
    cfg = Config()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(cfg.seed)
    train_ds, val_ds = Headlines(cfg, cfg.n_train, 1), Headlines(cfg, cfg.n_val, 2)
    sampler = DistributedSampler(train_ds, shuffle=True, seed=cfg.seed, drop_last=True)
    loader = DataLoader(train_ds, cfg.micro_batch, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val_ds, 32, sampler=DistributedSampler(val_ds, shuffle=False))

    model = DDP(HeadlineClassifier(cfg), gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    total = cfg.epochs * len(loader) // cfg.accum_steps
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(
        (s + 1) / cfg.warmup, 0.5 * (1 + math.cos(math.pi * s / total))))

    losses, step_times = [], []
    micro_losses = []
    t_last = time.perf_counter()
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            update = (i + 1) % cfg.accum_steps == 0
            with nullcontext() if update else model.no_sync():
                loss = F.cross_entropy(model(x), y) / cfg.accum_steps
                loss.backward()
            micro_losses.append(loss.item())
            if update:
                nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
                opt.step()
                opt.zero_grad()
                sched.step()
                losses.append(sum(micro_losses))
                micro_losses.clear()
                now = time.perf_counter()
                step_times.append(now - t_last)
                t_last = now
                if rank == 0 and len(losses) % cfg.log_every == 0:
                    print(f"update {len(losses):4d} loss {losses[-1]:.4f} lr {sched.get_last_lr()[0]:.2e}", flush=True)

    val_acc = validate(model, val_loader)
    if rank == 0:
        print(f"validation accuracy {val_acc:.3f}")
        with tempfile.TemporaryDirectory() as out:
            torch.save(model.module.state_dict(), os.path.join(out, "headlines.pt"))
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
