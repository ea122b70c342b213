"""Sentence classification with a TextCNN on two ranks."""
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
cfg = {
    "seed": 13,
    "vocab": 3000,
    "length": 80,
    "classes": 10,
    "train": 5120,
    "val": 512,
    "batch": 32,
    "epochs": 2,
    "dim": 96,
    "maps": 128,
    "widths": (3, 4, 5),
    "lr": 1e-3,
    "print_every": 25,
}


def sentences(n, seed):
    """The class shows in pairs of neighbouring words, not in single words."""
    g = torch.Generator().manual_seed(seed)
    words = (torch.rand(n, cfg["length"], generator=g) ** 2 * cfg["vocab"]).long()
    label = torch.randint(cfg["classes"], (n,), generator=g)
    rows = torch.arange(n)
    for _ in range(4):
        at = torch.randint(cfg["length"] - 1, (n,), generator=g)
        k = torch.randint(20, (n,), generator=g)
        words[rows, at] = 100 + k
        words[rows, at + 1] = 200 + (k + 2 * label) % 20
    return words, label


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(cfg["vocab"], cfg["dim"])
        self.convs = nn.ModuleList(
            [nn.Conv1d(cfg["dim"], cfg["maps"], w, padding=w // 2) for w in cfg["widths"]])
        self.out = nn.Linear(cfg["maps"] * len(cfg["widths"]), cfg["classes"])

    def forward(self, words):
        x = self.embedding(words).transpose(1, 2)
        pooled = [F.relu(conv(x).amax(2)) for conv in self.convs]
        return self.out(torch.cat(pooled, 1))


def shard_batches(n, epoch, rank):
    g = torch.Generator().manual_seed(cfg["seed"] + epoch)
    order = torch.randperm(n, generator=g)
    mine = order[rank::WORLD]
    return mine.split(cfg["batch"])


@torch.no_grad()
def accuracy(model, words, labels, rank):
    """Each rank takes half of the validation set."""
    model.eval()
    words, labels = words[rank::WORLD], labels[rank::WORLD]
    hits = sum((model.module(w).argmax(1) == y).sum() for w, y in zip(words.split(128), labels.split(128)))
    tally = torch.tensor([float(hits), float(len(labels))])
    dist.all_reduce(tally)
    model.train()
    return (tally[0] / tally[1]).item()


def worker(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    torch.manual_seed(cfg["seed"])
    words, labels = sentences(cfg["train"], cfg["seed"])
    val_words, val_labels = sentences(cfg["val"], cfg["seed"] + 1)
    model = DistributedDataParallel(TextCNN(), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"], fused=True)

    spans, losses = [], []
    dist.barrier()
    start = time.perf_counter()
    for epoch in range(cfg["epochs"]):
        tick = time.perf_counter()
        for take in shard_batches(len(labels), epoch, rank):
            loss = F.cross_entropy(model(words[take]), labels[take])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            now = time.perf_counter()
            spans.append(now - tick)
            tick = now
            if rank == 0 and len(losses) % cfg["print_every"] == 0:
                print(f"step {len(losses)} loss {losses[-1]:.4f}", flush=True)
        acc = accuracy(model, val_words, val_labels, rank)
        if rank == 0:
            print(f"epoch {epoch} val accuracy {acc:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    if rank == 0:
        steady = spans[10:]
        print("RESULT " + json.dumps({
            "step_s": sum(steady) / len(steady),
            "fit_s": fit_s,
            "loss": sum(losses[-20:]) / 20,
        }))
        sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(os.path.join(tmp, "rendezvous"),), nprocs=WORLD)


if __name__ == "__main__":
    main()
