"""Next-click prediction over shop sessions with a small transformer encoder."""
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    n_items: int = 1200
    n_sessions: int = 4096
    n_val: int = 512
    seq_len: int = 24
    d_model: int = 96
    n_heads: int = 4
    n_layers: int = 2
    dropout: float = 0.0
    batch_size: int = 48
    epochs: int = 4
    lr: float = 2e-3
    weight_decay: float = 0.01
    log_every: int = 50
    seed: int = 21


def simulate_sessions(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    n = cfg.n_sessions + cfg.n_val
    seq = torch.empty(n, cfg.seq_len + 1, dtype=torch.long)
    seq[:, 0] = torch.randint(cfg.n_items, (n,), generator=g)
    for t in range(1, cfg.seq_len + 1):
        related = (seq[:, t - 1] * 5 + 17 + torch.randint(3, (n,), generator=g)) % cfg.n_items
        random_jump = torch.randint(cfg.n_items, (n,), generator=g)
        seq[:, t] = torch.where(torch.rand(n, generator=g) < 0.8, related, random_jump)
    return seq[: cfg.n_sessions], seq[cfg.n_sessions:]


class EncoderLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.n_heads
        self.dropout = cfg.dropout
        self.norm1 = nn.LayerNorm(cfg.d_model)
        self.norm2 = nn.LayerNorm(cfg.d_model)
        self.qkv = nn.Linear(cfg.d_model, 3 * cfg.d_model)
        self.out = nn.Linear(cfg.d_model, cfg.d_model)
        self.ff = nn.Sequential(
            nn.Linear(cfg.d_model, 4 * cfg.d_model), nn.ReLU(), nn.Linear(4 * cfg.d_model, cfg.d_model)
        )

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.norm2(x))


class SessionRanker(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.items = nn.Embedding(cfg.n_items, cfg.d_model)
        self.pos = nn.Parameter(torch.zeros(cfg.seq_len, cfg.d_model))
        self.layers = nn.Sequential(*[EncoderLayer(cfg) for _ in range(cfg.n_layers)])
        self.norm = nn.LayerNorm(cfg.d_model)
        nn.init.normal_(self.items.weight, std=0.05)

    def forward(self, seq):
        x = self.layers(self.items(seq) + self.pos[: seq.shape[1]])
        return F.linear(self.norm(x), self.items.weight)


@torch.inference_mode()
def hit_rate(model, sessions, k=10, chunk=128):
    model.eval()
    hits = torch.zeros((), dtype=torch.long)
    for s in sessions.split(chunk):
        top = model(s[:, :-1])[:, -1].topk(k, dim=-1).indices
        hits += (top == s[:, -1:]).any(-1).sum()
    model.train()
    return hits.item() / len(sessions)


def main():
    t_start = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train_seq, val_seq = simulate_sessions(cfg)
    model = SessionRanker(cfg)
    n_params = sum(p.numel() for p in model.parameters())
    print(f"{n_params / 1e3:.0f}k parameters, {len(train_seq)} sessions")

    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True)
    steps_per_epoch = len(train_seq) // cfg.batch_size
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.epochs * steps_per_epoch, pct_start=0.1)

    losses, step_times = [], []
    t_last = time.perf_counter()
    for epoch in range(cfg.epochs):
        order = torch.randperm(len(train_seq))
        for i in range(steps_per_epoch):
            batch = train_seq[order[i * cfg.batch_size:(i + 1) * cfg.batch_size]]
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.detach())
            now = time.perf_counter()
            step_times.append(now - t_last)
            t_last = now
            if len(losses) % cfg.log_every == 0:
                recent = torch.stack(losses[-cfg.log_every:]).mean().item()
                print(f"epoch {epoch} step {len(losses)} loss {recent:.4f} lr {sched.get_last_lr()[0]:.2e}")
        print(f"epoch {epoch} hit@10 {hit_rate(model, val_seq):.3f}")
        t_last = time.perf_counter()

    with tempfile.TemporaryDirectory() as out:
        torch.save({"model": model.state_dict(), "config": asdict(cfg)}, os.path.join(out, "ranker.pt"))

    print("RESULT " + json.dumps({
        "step_s": statistics.median(step_times),
        "fit_s": time.perf_counter() - t_start,
        "loss": torch.stack(losses[-10:]).mean().item(),
    }))


if __name__ == "__main__":
    main()
