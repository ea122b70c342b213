"""Dialogue-act tagging with a recurrent tagger on two data-parallel ranks.

Dialogues are batched by length so that little padding is needed.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence

IGNORE = -100


@dataclass
class Config:
    world: int = 2
    dialogues: int = 3840
    vocab: int = 1200
    acts: int = 14
    min_len: int = 6
    max_len: int = 200
    emb: int = 96
    hidden: int = 128
    batch_size: int = 16
    epochs: int = 2
    lr: float = 1e-3
    seed: int = 83


def make_dialogues(cfg):
    rng = np.random.default_rng(cfg.seed)
    act_of = rng.integers(0, cfg.acts, cfg.vocab)
    data = []
    for _ in range(cfg.dialogues):
        n = int(np.clip(cfg.min_len + rng.exponential(50), cfg.min_len, cfg.max_len))
        words = rng.integers(1, cfg.vocab, n)
        acts = act_of[words].copy()
        repeat = words[1:] % 7 == 0
        acts[1:][repeat] = acts[:-1][repeat]
        noise = rng.random(n) < 0.05
        acts[noise] = rng.integers(0, cfg.acts, int(noise.sum()))
        data.append((torch.from_numpy(words), torch.from_numpy(acts)))
    return data


class LengthBatches:
    """Batches of dialogues of similar length, divided among the ranks, shuffled every epoch."""

    def __init__(self, data, batch_size, rank, world, seed):
        self.data, self.seed = data, seed
        order = sorted(range(len(data)), key=lambda i: len(data[i][0]))
        batches = [order[i:i + batch_size] for i in range(0, len(order), batch_size)]
        per_rank = len(batches) // world
        self.batches = batches[rank * per_rank:(rank + 1) * per_rank]

    def __len__(self):
        return len(self.batches)

    def epoch(self, number):
        g = torch.Generator().manual_seed(self.seed + number)
        for b in torch.randperm(len(self.batches), generator=g).tolist():
            words, acts = zip(*(self.data[i] for i in self.batches[b]))
            yield (pad_sequence(words, batch_first=True),
                   pad_sequence(acts, batch_first=True, padding_value=IGNORE))


class Tagger(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.emb, padding_idx=0)
        self.rnn = nn.GRU(cfg.emb, cfg.hidden, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * cfg.hidden)
        self.out = nn.Linear(2 * cfg.hidden, cfg.acts)

    def forward(self, words):
        h, _ = self.rnn(self.emb(words))
        return self.out(self.norm(h))


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    counts = torch.zeros(2, dtype=torch.float64)
    for words, acts in batches.epoch(0):
        keep = acts != IGNORE
        counts[0] += (model(words).argmax(-1) == acts)[keep].sum()
        counts[1] += keep.sum()
    model.train()
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def worker(cfg):
    started = time.perf_counter()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed)
    data = make_dialogues(cfg)
    n_val = len(data) // 12
    train = LengthBatches(data[n_val:], cfg.batch_size, rank, world, cfg.seed)
    valid = LengthBatches(data[:n_val], cfg.batch_size, rank, world, cfg.seed)
    model = DDP(Tagger(cfg))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    out = tempfile.mkdtemp(prefix="dialog_") if rank == 0 else None
    losses, times = [], []
    for epoch in range(cfg.epochs):
        t = time.perf_counter()
        for step, (words, acts) in enumerate(train.epoch(epoch)):
            logits = model(words)
            loss = F.cross_entropy(logits.flatten(0, 1), acts.flatten(), ignore_index=IGNORE)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            now = time.perf_counter()
            times.append(now - t)
            t = now
            if rank == 0 and step % 25 == 0:
                print(f"epoch {epoch} step {step}/{len(train)} loss {losses[-1]:.4f}", flush=True)
        acc = evaluate(model.module, valid)
        if rank == 0:
            print(f"epoch {epoch} token accuracy {acc:.4f}", flush=True)
            torch.save(model.module.state_dict(), os.path.join(out, f"tagger_{epoch}.pt"))
    fit_s = time.perf_counter() - started
    last = torch.tensor(losses[-10:]).mean()
    dist.all_reduce(last)
    if rank == 0:
        print("RESULT " + json.dumps({"step_s": float(np.median(times)), "fit_s": fit_s,
                                      "loss": float(last) / world}), flush=True)
    dist.destroy_process_group()


def main():
    cfg = Config()
    if "LOCAL_RANK" not in os.environ:
        cmd = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               "--nproc_per_node", str(cfg.world), os.path.abspath(__file__)]
        raise SystemExit(subprocess.call(cmd))
    worker(cfg)


if __name__ == "__main__":
    main()
