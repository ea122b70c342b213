"""CTR model on hashed categorical features (wide embedding table + deep tower)."""
import argparse
import json
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("ctr")


def build_parser():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rows", type=int, default=160_000)
    p.add_argument("--fields", type=int, default=14)
    p.add_argument("--dense", type=int, default=8)
    p.add_argument("--buckets", type=int, default=250_000)
    p.add_argument("--dim", type=int, default=32)
    p.add_argument("--batch-size", type=int, default=512)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--seed", type=int, default=5)
    return p


def hash_bucket(field, value, buckets):
    h = (value.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    h ^= np.uint64(field + 1) * np.uint64(0xC2B2AE3D27D4EB4F)
    h ^= h >> np.uint64(29)
    return (h % np.uint64(buckets)).astype(np.int64)


def make_impressions(args):
    rng = np.random.default_rng(args.seed)
    cats = np.empty((args.rows, args.fields), dtype=np.int64)
    score = np.zeros(args.rows)
    for f in range(args.fields):
        card = int(10 ** rng.uniform(1.0, 4.6))
        raw = np.minimum((rng.pareto(1.1, args.rows) * card / 20).astype(np.int64), card - 1)
        effect = rng.normal(0, 0.5, card)
        score += effect[raw]
        cats[:, f] = hash_bucket(f, raw, args.buckets)
    dense = rng.normal(size=(args.rows, args.dense)).astype(np.float32)
    score += dense @ rng.normal(0, 0.4, args.dense) - 1.2
    clicks = (rng.random(args.rows) < 1 / (1 + np.exp(-score))).astype(np.float32)
    return torch.from_numpy(cats), torch.from_numpy(dense), torch.from_numpy(clicks)


class DeepCTR(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.table = nn.Embedding(args.buckets, args.dim)
        nn.init.normal_(self.table.weight, std=0.02)
        width = args.fields * args.dim + args.dense
        self.tower = nn.Sequential(
            nn.Linear(width, 384), nn.ReLU(),
            nn.Linear(384, 192), nn.ReLU(),
            nn.Linear(192, 1),
        )

    def forward(self, cats, dense):
        e = self.table(cats).flatten(1)
        return self.tower(torch.cat([e, dense], 1)).squeeze(1)


def auc(scores, labels):
    order = scores.argsort()
    ranks = torch.empty_like(scores)
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
    pos = labels.sum()
    neg = len(labels) - pos
    return ((ranks[labels > 0].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


@torch.no_grad()
def evaluate(model, cats, dense, clicks):
    model.eval()
    out = torch.cat([model(c, d) for c, d in zip(cats.split(4096), dense.split(4096))])
    model.train()
    return auc(out.double(), clicks)


def main():
    started = time.perf_counter()
    args = build_parser().parse_args()
    torch.manual_seed(args.seed)
    cats, dense, clicks = make_impressions(args)
    n_val = args.rows // 10
    tr = [t[:-n_val] for t in (cats, dense, clicks)]
    va = [t[-n_val:] for t in (cats, dense, clicks)]
    log.info("train %d rows, click rate %.3f", len(tr[2]), tr[2].mean().item())

    model = DeepCTR(args)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    criterion = nn.BCEWithLogitsLoss()
    losses, step_times = [], []
    for epoch in range(args.epochs):
        perm = torch.randperm(len(tr[2]))
        t = time.perf_counter()
        for step, idx in enumerate(perm.split(args.batch_size)):
            logits = model(tr[0][idx], tr[1][idx])
            loss = criterion(logits, tr[2][idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            now = time.perf_counter()
            step_times.append(now - t)
            t = now
            if step % 60 == 0:
                log.info("epoch %d step %d logloss %.4f", epoch, step, np.mean(losses[-60:]))
        log.info("epoch %d val AUC %.4f", epoch, evaluate(model, *va))
    out = Path(tempfile.mkdtemp(prefix="ctr_")) / "model.pt"
    torch.save(model.state_dict(), out)
    print("RESULT " + json.dumps({"step_s": float(np.median(step_times)),
                                  "fit_s": time.perf_counter() - started,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
