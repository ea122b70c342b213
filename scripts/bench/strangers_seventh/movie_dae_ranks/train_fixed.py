"""Denoising autoencoder for implicit movie ratings (Mult-DAE), data parallel over two processes."""
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    users: int = 5120
    held_out_users: int = 512
    movies: int = 2400
    factors: int = 24
    hidden: int = 400
    latent: int = 160
    dropout: float = 0.4
    micro_batch: int = 16
    accumulate: int = 4
    epochs: int = 4
    lr: float = 1.5e-3
    weight_decay: float = 1e-5
    log_every: int = 20
    seed: int = 5


def simulate_interactions(cfg):
    """Implicit feedback drawn from a low rank taste model; one row per user."""
    rng = np.random.default_rng(cfg.seed)
    total = cfg.users + cfg.held_out_users
    taste = rng.normal(size=(total, cfg.factors)).astype(np.float32)
    movie = rng.normal(size=(cfg.movies, cfg.factors)).astype(np.float32)
    appeal = rng.gumbel(0, 1.5, cfg.movies).astype(np.float32)
    rows = []
    for lo in range(0, total, 1024):
        score = taste[lo:lo + 1024] @ movie.T * 0.6 + appeal
        score += rng.standard_normal(score.shape, dtype=np.float32)
        top = np.argpartition(-score, 60, axis=1)[:, :60]
        rows.append(top)
    columns = np.concatenate(rows)
    users = np.repeat(np.arange(total), columns.shape[1])
    ones = np.ones(users.size, dtype=np.float32)
    matrix = sp.csr_matrix((ones, (users, columns.ravel())), shape=(total, cfg.movies))
    return matrix[:cfg.users], matrix[cfg.users:]


class UserIds(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index


class MovieDAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.drop = nn.Dropout(cfg.dropout)
        self.encoder = nn.Sequential(
            nn.Linear(cfg.movies, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, cfg.latent), nn.Tanh())
        self.decoder = nn.Sequential(
            nn.Linear(cfg.latent, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, cfg.movies))

    def forward(self, clicks):
        return self.decoder(self.encoder(self.drop(F.normalize(clicks, dim=1))))


def multinomial_loss(logits, clicks):
    return -(F.log_softmax(logits, dim=1) * clicks).sum(1).mean()


@torch.inference_mode()
def recall_at(model, matrix, rank, world, k=50):
    """Share of hidden movies among the first k recommendations; users are split over the ranks."""
    model.eval()
    dense = torch.from_numpy(matrix[rank::world].toarray())
    generator = torch.Generator().manual_seed(0)
    hidden = dense * (torch.rand(dense.shape, generator=generator) < 0.2)
    logits = model(dense - hidden).masked_fill((dense - hidden) > 0, float("-inf"))
    found = hidden.gather(1, logits.topk(k, dim=1).indices).sum(1)
    tally = torch.stack([(found / hidden.sum(1).clamp(min=1)).sum(), torch.tensor(float(len(dense)))])
    dist.all_reduce(tally)
    model.train()
    return (tally[0] / tally[1]).item()


def main():
    begin = time.perf_counter()
    cfg = Config()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed)
    train_matrix, test_matrix = simulate_interactions(cfg)

    def collate(ids):
        return torch.from_numpy(train_matrix[ids].toarray())

    users = UserIds(cfg.users)
    sampler = DistributedSampler(users, world, rank, shuffle=True, seed=cfg.seed, drop_last=True)
    loader = DataLoader(users, cfg.micro_batch, sampler=sampler, collate_fn=collate, drop_last=True)

    net = MovieDAE(cfg)
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True)
    torch.manual_seed(cfg.seed + 1 + rank)

    losses, durations, step = [], [], 0
    mark = time.perf_counter()
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for micro, clicks in enumerate(loader, start=1):
            with model.no_sync() if micro % cfg.accumulate else nullcontext():
                loss = multinomial_loss(model(clicks), clicks) / cfg.accumulate
                loss.backward()
            running += loss.item()
            if micro % cfg.accumulate:
                continue
            optimizer.step()
            optimizer.zero_grad()
            losses.append(running)
            running = 0.0
            step += 1
            if rank == 0 and step % cfg.log_every == 0:
                print(f"epoch {epoch} step {step} nll {statistics.fmean(losses[-cfg.log_every:]):.3f}", flush=True)
            now = time.perf_counter()
            durations.append(now - mark)
            mark = now
        recall = recall_at(net, test_matrix, rank, world)
        if rank == 0:
            print(f"epoch {epoch} recall@50 {recall:.4f}", flush=True)

    if rank == 0:
        print("RESULT " + json.dumps({
            "step_s": round(statistics.median(durations), 5),
            "fit_s": round(time.perf_counter() - begin, 2),
            "loss": round(statistics.fmean(losses[-10:]), 5),
        }), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "LOCAL_RANK" not in os.environ:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", __file__]
        sys.exit(subprocess.call(launch))
    main()
