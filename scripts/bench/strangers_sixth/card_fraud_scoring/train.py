"""Score card transactions for fraud with a network over categorical embeddings and numeric fields."""
import json
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision


@dataclass
class Config:
    n_train: int = 200_000
    n_val: int = 20_000
    n_numeric: int = 24
    cardinalities: tuple = (800, 300, 60, 24, 7, 12)
    embedding: int = 16
    hidden: int = 192
    dropout: float = 0.1
    batch_size: int = 1024
    epochs: int = 2
    lr: float = 1e-3
    fraud_rate: float = 0.06
    log_every: int = 20
    seed: int = 3


def make_transactions(n, cfg, seed):
    truth = np.random.default_rng(cfg.seed)
    effects = [truth.normal(0, 0.6, c) for c in cfg.cardinalities]
    weights = truth.normal(0, 0.5, cfg.n_numeric)
    rng = np.random.default_rng(seed)
    numeric = rng.normal(0, 1, (n, cfg.n_numeric)).astype(np.float32)
    category = np.stack([rng.integers(0, c, n) for c in cfg.cardinalities], axis=1)
    logit = numeric @ weights + sum(e[category[:, i]] for i, e in enumerate(effects))
    logit += 0.7 * numeric[:, 0] * numeric[:, 1]
    cut = np.quantile(logit, 1 - cfg.fraud_rate)
    fraud = rng.random(n) < 1 / (1 + np.exp(-2.0 * (logit - cut)))
    return TensorDataset(torch.from_numpy(numeric), torch.from_numpy(category), torch.from_numpy(fraud.astype(np.float32)))


class FraudNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(c, cfg.embedding) for c in cfg.cardinalities])
        width = cfg.n_numeric + cfg.embedding * len(cfg.cardinalities)
        self.net = nn.Sequential(
            nn.Linear(width, cfg.hidden), nn.BatchNorm1d(cfg.hidden), nn.ReLU(), nn.Dropout(cfg.dropout),
            nn.Linear(cfg.hidden, cfg.hidden), nn.BatchNorm1d(cfg.hidden), nn.ReLU(), nn.Dropout(cfg.dropout),
            nn.Linear(cfg.hidden, 1),
        )

    def forward(self, numeric, category):
        parts = [emb(category[:, i]) for i, emb in enumerate(self.embeddings)]
        return self.net(torch.cat([numeric, *parts], dim=1)).squeeze(1)


class BatchedLoader:
    def __init__(self, dataset, batch_size, shuffle):
        self.tensors = dataset.tensors
        self.batch_size = batch_size
        self.shuffle = shuffle

    def __iter__(self):
        n = len(self.tensors[0])
        order = torch.randperm(n) if self.shuffle else torch.arange(n)
        for chunk in order.split(self.batch_size):
            yield tuple(t[chunk] for t in self.tensors)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    auroc, ap = BinaryAUROC(), BinaryAveragePrecision()
    for numeric, category, fraud in loader:
        score = torch.sigmoid(model(numeric, category))
        auroc.update(score, fraud.long())
        ap.update(score, fraud.long())
    model.train()
    return auroc.compute().item(), ap.compute().item()


def main():
    t0 = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train_loader = BatchedLoader(make_transactions(cfg.n_train, cfg, cfg.seed + 1), cfg.batch_size, shuffle=True)
    val_loader = BatchedLoader(make_transactions(cfg.n_val, cfg, cfg.seed + 2), 4096, shuffle=False)

    model = FraudNet(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * (cfg.n_train // cfg.batch_size + 1))
    loss_fn = nn.BCEWithLogitsLoss()
    train_auroc = BinaryAUROC()

    losses, history, ends, step = [], [], [], 0
    for epoch in range(cfg.epochs):
        train_auroc.reset()
        for numeric, category, fraud in train_loader:
            logits = model(numeric, category)
            loss = loss_fn(logits, fraud)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            train_auroc.update(torch.sigmoid(logits.detach()), fraud.long())
            auc = train_auroc.compute().item()
            history.append({"step": step, "loss": losses[-1], "auroc": auc})
            step += 1
            ends.append(time.perf_counter())
            if step % cfg.log_every == 0:
                print(f"epoch {epoch} step {step} loss {np.mean(losses[-cfg.log_every:]):.4f} auroc {auc:.4f}", flush=True)
        val_auroc, val_ap = evaluate(model, val_loader)
        print(f"epoch {epoch} val auroc {val_auroc:.4f} ap {val_ap:.4f} train auroc {train_auroc.compute().item():.4f}", flush=True)

    print("RESULT " + json.dumps({
        "step_s": float(np.median(np.diff(ends))),
        "fit_s": time.perf_counter() - t0,
        "loss": float(np.mean(losses[-10:])),
    }))


if __name__ == "__main__":
    main()
