"""SASRec: next click from a session's history (Lightning)."""
import argparse
import json
import tempfile
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

PAD = 0


def click_sessions(users, items, length, seed):
    """Walks among item clusters; item ids from 1, padded on the left."""
    g = torch.Generator().manual_seed(seed)
    clusters = 40
    follow = torch.randint(clusters, (clusters, 3), generator=torch.Generator().manual_seed(99))
    state = torch.randint(clusters, (users,), generator=g)
    columns = []
    for _ in range(length + 1):
        branch = torch.randint(3, (users,), generator=g)
        jump = torch.rand(users, generator=g) < 0.3
        state = torch.where(jump, follow[state, branch], state)
        popular = (torch.rand(users, generator=g) ** 3 * (items // clusters)).long()
        columns.append(1 + state * (items // clusters) + popular)
    seq = torch.stack(columns, 1)
    short = torch.randint(length // 3, (users, 1), generator=g)
    return seq.masked_fill(torch.arange(length + 1) < short, PAD)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class SASRec(L.LightningModule):
    def __init__(self, n_items=1200, max_len=48, dim=96, heads=2, layers=2, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.item = nn.Embedding(n_items + 1, dim, padding_idx=PAD)
        self.position = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        nn.init.normal_(self.item.weight, std=0.02)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.losses, self.spans = [], []

    def forward(self, history):
        x = self.item(history) + self.position
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def training_step(self, batch, _):
        (seq,) = batch
        history, target = seq[:, :-1], seq[:, 1:]
        keep = target != PAD
        logits = self(history)[keep] @ self.item.weight.t()
        loss = F.cross_entropy(logits, target[keep])
        self.log("train_loss", loss)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch, _):
        (seq,) = batch
        scores = self(seq[:, :-1])[:, -1] @ self.item.weight.t()
        rank = (scores > scores.gather(1, seq[:, -1:])).sum(1)
        self.log("hit@20", (rank < 20).float().mean())

    def on_train_epoch_start(self):
        self.tick = time.perf_counter()

    def on_train_batch_end(self, *_):
        now = time.perf_counter()
        self.spans.append(now - self.tick)
        self.tick = now

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01, fused=True)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt, self.hparams.lr, total_steps=int(self.trainer.estimated_stepping_batches))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--users", type=int, default=3200)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--dim", type=int, default=96)
    args = ap.parse_args()
    L.seed_everything(17)
    model = SASRec(dim=args.dim)
    hp = model.hparams
    train_set = TensorDataset(click_sessions(args.users, hp.n_items, hp.max_len, 1))
    val_set = TensorDataset(click_sessions(256, hp.n_items, hp.max_len, 2))
    train = DataLoader(train_set, batch_size=args.batch, shuffle=True, drop_last=True)
    val = DataLoader(val_set, batch_size=128)
    with tempfile.TemporaryDirectory() as tmp:
        trainer = L.Trainer(
            max_epochs=args.epochs, accelerator="cpu", devices=1, logger=CSVLogger(tmp), log_every_n_steps=25,
            enable_checkpointing=False, enable_progress_bar=False, num_sanity_val_steps=0,
        )
        start = time.perf_counter()
        trainer.fit(model, train, val)
        fit_s = time.perf_counter() - start
        trainer.save_checkpoint(f"{tmp}/last.ckpt", weights_only=True)
    print("hit@20", round(trainer.callback_metrics["hit@20"].item(), 4))
    steady = model.spans[10:]
    print("RESULT " + json.dumps({
        "step_s": sum(steady) / len(steady), "fit_s": fit_s, "loss": torch.stack(model.losses[-25:]).mean().item()}))


if __name__ == "__main__":
    main()
