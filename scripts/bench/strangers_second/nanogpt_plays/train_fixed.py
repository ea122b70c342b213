"""Character-level GPT on made-up stage plays, after the well-known lecture."""
import json
import math
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 64
    batch_size: int = 24
    n_embd: int = 128
    n_head: int = 8
    n_layer: int = 3
    max_iters: int = 120
    eval_interval: int = 60
    eval_iters: int = 6
    learning_rate: float = 1e-3
    min_lr: float = 1e-4
    warmup: int = 20
    seed: int = 1337


cfg = GPTConfig()
torch.manual_seed(cfg.seed)

ROLES = ["DUKE", "NURSE", "FOOL", "GHOST", "CAPTAIN", "WIDOW"]
SUBJECTS = "the night,my lord,thy brother,this crown,the sea,a sword,her letter,our feast,the king".split(",")
VERBS = "doth sleep,shall fall,is broken,comes too late,knows no mercy,speaks of war,hath returned".split(",")
TAILS = ", alas; and yet I wait;, as I have sworn;! O hear me;. Go, tell them so;, before the dawn".split(";")


def write_play(lines=6000, seed=5):
    rnd = random.Random(seed)
    out = []
    for _ in range(lines):
        out.append(f"{rnd.choice(ROLES)}:\n{rnd.choice(SUBJECTS)} {rnd.choice(VERBS)}{rnd.choice(TAILS)}.\n\n")
    return "".join(out)


text = write_play()
chars = sorted(set(text))
vocab_size = len(chars)
stoi = {ch: i for i, ch in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
n = int(0.9 * len(data))
splits = {"train": data[:n], "val": data[n:]}


def get_batch(split):
    d = splits[split]
    ix = torch.randint(len(d) - cfg.block_size - 1, (cfg.batch_size, 1))
    chunk = d[ix + torch.arange(cfg.block_size + 1)]
    return chunk[:, :-1], chunk[:, 1:]


class CausalSelfAttention(nn.Module):
    """all heads at once"""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(cfg.n_embd, 3 * cfg.n_embd, bias=False)
        self.proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, 3, cfg.n_head, C // cfg.n_head).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(out.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(cfg.n_embd), nn.LayerNorm(cfg.n_embd)
        self.sa = CausalSelfAttention()
        self.ffwd = nn.Sequential(
            nn.Linear(cfg.n_embd, 4 * cfg.n_embd), nn.ReLU(), nn.Linear(4 * cfg.n_embd, cfg.n_embd))

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, cfg.n_embd)
        self.pos = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(cfg.n_layer)])
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, vocab_size)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    out = {s: sum(model(*get_batch(s))[1].item() for _ in range(cfg.eval_iters)) / cfg.eval_iters for s in splits}
    model.train()
    return out


def get_lr(it):
    if it < cfg.warmup:
        return cfg.learning_rate * (it + 1) / cfg.warmup
    ratio = (it - cfg.warmup) / (cfg.max_iters - cfg.warmup)
    return cfg.min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (cfg.learning_rate - cfg.min_lr)


model = GPT()
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, vocabulary {vocab_size}")
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.learning_rate, fused=True)
torch.manual_seed(cfg.seed)

losses, durations = [], []
start = time.perf_counter()
for it in range(cfg.max_iters):
    if it and it % cfg.eval_interval == 0:
        est = estimate_loss(model)
        print(f"step {it}: train {est['train']:.4f} val {est['val']:.4f}")
    t0 = time.perf_counter()
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    xb, yb = get_batch("train")
    _, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    durations.append(time.perf_counter() - t0)
fit_s = time.perf_counter() - start
steady = durations[10:]
print("RESULT " + json.dumps({
    "step_s": sum(steady) / len(steady), "fit_s": fit_s, "loss": sum(losses[-20:]) / 20}))
