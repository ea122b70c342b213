"""Playlist continuation: factor model with a small tower, BPR loss, hit rate on held-out songs."""
import argparse
import json
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--users", type=int, default=1500)
    p.add_argument("--songs", type=int, default=2500)
    p.add_argument("--plays", type=int, default=20)
    p.add_argument("--batch", type=int, default=1000)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=2)
    return p.parse_args()


def make_plays(users, songs, plays):
    """Each user plays songs of a few styles; the last play is held out."""
    style = torch.randint(25, (users, 3))
    pick = style.gather(1, torch.randint(3, (users, plays + 1)))
    song = (pick * (songs // 25) + torch.randint(songs // 25, (users, plays + 1))) % songs
    user = torch.arange(users).repeat_interleave(plays)
    return torch.stack([user, song[:, :-1].flatten()], 1), song[:, :-1], song[:, -1]


class PlaylistModel(L.LightningModule):
    def __init__(self, users, songs, seen, held_out, lr, dim=64):
        super().__init__()
        self.users, self.songs, self.lr = users, songs, lr
        self.seen, self.held_out = seen, held_out
        self.user_vector = nn.Embedding(users, dim)
        self.song_vector = nn.Embedding(songs, dim)
        self.tower = nn.Sequential(nn.Linear(dim, 256), nn.ReLU(), nn.Linear(256, dim))

    def score_all(self, users):
        return self.tower(self.user_vector(users)) @ self.song_vector.weight.T

    def training_step(self, batch, _):
        user, liked = batch[0].unbind(1)
        other = torch.randint_like(liked, self.songs)
        vector = self.tower(self.user_vector(user))
        margin = (vector * (self.song_vector(liked) - self.song_vector(other))).sum(1)
        return -F.logsigmoid(margin).mean()

    def validation_step(self, batch, _):
        hits, ranks = [], []
        for user in batch[0]:
            score = self.score_all(user.unsqueeze(0)).squeeze(0)
            ranked = torch.argsort(score, descending=True).tolist()
            seen = set(self.seen[user].tolist())
            ranked = [song for song in ranked if song not in seen]
            target = self.held_out[user].item()
            rank = ranked.index(target) if target in ranked else len(ranked)
            hits.append(float(rank < 20))
            ranks.append(1.0 / (rank + 1))
        self.log("val_hit20", sum(hits) / len(hits))
        self.log("val_mrr", sum(ranks) / len(ranks), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr, fused=True)


class Stopwatch(L.Callback):
    def __init__(self):
        self.begin, self.spans, self.losses = 0.0, [], []

    def on_train_batch_start(self, *_):
        self.begin = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())
        self.spans.append(time.perf_counter() - self.begin)

    def on_validation_end(self, trainer, module):
        print({k: round(v.item(), 4) for k, v in trainer.callback_metrics.items()}, flush=True)


def main():
    args = get_args()
    L.seed_everything(args.seed)
    pairs, seen, held_out = make_plays(args.users, args.songs, args.plays)
    train = TensorDataset(pairs)
    sampler = BatchSampler(RandomSampler(train), args.batch, drop_last=True)
    train_loader = DataLoader(train, sampler=sampler, batch_size=None)
    val_loader = DataLoader(TensorDataset(torch.arange(args.users)), batch_size=500)
    watch = Stopwatch()
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, callbacks=[watch],
    )
    model = PlaylistModel(args.users, args.songs, seen, held_out, args.lr)
    start = time.perf_counter()
    trainer.fit(model, train_loader, val_loader)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": sum(watch.spans[10:]) / (len(watch.spans) - 10),
        "fit_s": fit_s,
        "loss": sum(watch.losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
