"""Signal against background in simulated dimuon collisions with a dense network on event features."""
import json
import math
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision


@dataclass
class Config:
    events: int = 204800
    test_events: int = 40960
    batch_size: int = 2048
    hidden: int = 128
    depth: int = 3
    dropout: float = 0.1
    epochs: int = 4
    lr: float = 2e-3
    weight_decay: float = 1e-4
    log_every: int = 25
    seed: int = 23


def muon(rng, n, scale):
    pt = rng.exponential(scale, n) + 10.0
    return pt, rng.normal(0, 1.1, n), rng.uniform(-math.pi, math.pi, n)


def simulate_events(n, rng):
    """Two leading muons, missing energy and jets; signal has a narrow resonance."""
    signal = rng.random(n) < 0.5
    pt1, eta1, phi1 = muon(rng, n, 40.0)
    pt2, eta2, phi2 = muon(rng, n, 25.0)
    resonance = 91.0 + rng.standard_cauchy(n).clip(-20, 20) * 2.5
    boost = np.cosh(eta1 - eta2) - np.cos(phi1 - phi2) + 0.05
    pt2 = np.where(signal & (rng.random(n) < 0.7), (resonance ** 2 / (2 * pt1 * boost)).clip(5, 400), pt2)
    mass = np.sqrt(2 * pt1 * pt2 * boost) * rng.normal(1, 0.04, n)
    met = rng.exponential(np.where(signal, 18.0, 26.0))
    jets = rng.poisson(np.where(signal, 1.2, 1.9))
    columns = [np.log(pt1), eta1, np.sin(phi1), np.cos(phi1), np.log(pt2), eta2, np.sin(phi2), np.cos(phi2),
               np.log(mass), np.log1p(met), jets, eta1 - eta2, np.cos(phi1 - phi2), np.log(pt1 + pt2)]
    features = np.stack(columns, axis=1).astype(np.float32)
    features = np.concatenate([features, features + rng.normal(0, 0.5, features.shape).astype(np.float32)], axis=1)
    return torch.from_numpy(features), torch.from_numpy(signal.astype(np.float32))


class EventClassifier(nn.Module):
    def __init__(self, inputs, cfg):
        super().__init__()
        layers, width = [], inputs
        for _ in range(cfg.depth):
            layers += [nn.Linear(width, cfg.hidden), nn.ReLU(inplace=True), nn.Dropout(cfg.dropout)]
            width = cfg.hidden
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, features):
        return self.net(features).squeeze(1)


def make_metrics():
    return MetricCollection({"auc": BinaryAUROC(), "ap": BinaryAveragePrecision()})


@torch.inference_mode()
def evaluate(model, features, labels):
    model.eval()
    metrics = make_metrics()
    for part, target in zip(features.split(8192), labels.split(8192)):
        metrics.update(torch.sigmoid(model(part)), target.int())
    model.train()
    return {name: value.item() for name, value in metrics.compute().items()}


def main():
    begin = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    features, labels = simulate_events(cfg.events, rng)
    test_features, test_labels = simulate_events(cfg.test_events, rng)
    mean, std = features.mean(0), features.std(0)
    features, test_features = (features - mean) / std, (test_features - mean) / std

    model = EventClassifier(features.shape[1], cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True)
    steps_per_epoch = cfg.events // cfg.batch_size
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * steps_per_epoch)
    metrics = make_metrics()

    losses, durations, step = [], [], 0
    with tempfile.TemporaryDirectory(prefix="dimuon_") as tmp:
        mark = time.perf_counter()
        for epoch in range(cfg.epochs):
            metrics.reset()
            order = torch.randperm(cfg.events)
            for chosen in order[:steps_per_epoch * cfg.batch_size].split(cfg.batch_size):
                batch, target = features[chosen], labels[chosen]
                logits = model(batch)
                loss = F.binary_cross_entropy_with_logits(logits, target)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                step += 1

                metrics.update(torch.sigmoid(logits.detach()), target.int())
                if step % cfg.log_every == 0:
                    scores = metrics.compute()
                    print(f"epoch {epoch} step {step} loss {losses[-1]:.4f} "
                          f"auc {scores['auc']:.4f} ap {scores['ap']:.4f}")
                now = time.perf_counter()
                durations.append(now - mark)
                mark = now
            test = evaluate(model, test_features, test_labels)
            print(f"epoch {epoch} test auc {test['auc']:.4f} ap {test['ap']:.4f}")
            torch.save({"model": model.state_dict(), "mean": mean, "std": std}, Path(tmp) / "classifier.pt")

    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(durations), 5),
        "fit_s": round(time.perf_counter() - begin, 2),
        "loss": round(statistics.fmean(losses[-10:]), 5),
    }))


if __name__ == "__main__":
    main()
