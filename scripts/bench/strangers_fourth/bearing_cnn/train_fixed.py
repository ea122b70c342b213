"""Fault diagnosis of rolling bearings from vibration (12 kHz), 1-D CNN, ten conditions."""
import argparse
import json
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("bearing")
FS = 12_000
CONDITIONS = 10


def simulate(count, length, rng):
    """Impulse trains at the characteristic frequency of each condition, ringing at a resonance."""
    t = np.arange(length) / FS
    labels = rng.integers(0, CONDITIONS, count)
    shaft = 29.95 * (1 + 0.02 * rng.standard_normal(count))
    signals = 1.2 * rng.standard_normal((count, length))
    for i, label in enumerate(labels):
        rate = shaft[i] * (1.6 + 0.55 * label)
        phase = (t + rng.random() / rate) % (1 / rate)
        signals[i] += 2.0 * np.exp(-phase * 900) * np.sin(2 * np.pi * (2200 + 150 * label) * phase)
        signals[i] += 0.4 * np.sin(2 * np.pi * shaft[i] * t)
    return signals, labels


def standardise(signals):
    return (signals - signals.mean(axis=1, keepdims=True)) / signals.std(axis=1, keepdims=True)


def make_sets(args):
    rng = np.random.default_rng(args.seed)
    signals, labels = simulate(args.records, args.length, rng)
    signals = torch.from_numpy(standardise(signals)).float().unsqueeze(1)
    labels = torch.from_numpy(labels).long()
    cut = int(0.85 * len(labels))
    return TensorDataset(signals[:cut], labels[:cut]), TensorDataset(signals[cut:], labels[cut:])


class BearingNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()

        def stage(cin, cout, kernel, stride):
            return nn.Sequential(
                nn.Conv1d(cin, cout, kernel, stride=stride, padding=kernel // 2),
                nn.BatchNorm1d(cout),
                nn.ReLU(inplace=True),
            )

        self.features = nn.Sequential(
            stage(1, width, 63, 4),
            stage(width, 2 * width, 9, 2),
            stage(2 * width, 2 * width, 9, 2),
            stage(2 * width, 4 * width, 9, 2),
        )
        self.classify = nn.Linear(4 * width, CONDITIONS)

    def forward(self, x):
        return self.classify(self.features(x).mean(dim=-1))


def dtype_of(dataset):
    return dataset.tensors[0].dtype


@torch.inference_mode()
def accuracy(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--records", type=int, default=1500)
    p.add_argument("--length", type=int, default=2048)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=42)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)

    train_set, test_set = make_sets(args)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, 2 * args.batch_size)
    model = BearingNet().to(dtype_of(train_set))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()

    losses, marks = [], []
    t0 = time.monotonic()
    for epoch in range(args.epochs):
        for x, y in train_loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            marks.append(time.monotonic())
        log.info("epoch %d loss %.4f test acc %.3f", epoch, losses[-1], accuracy(model, test_loader))
    print("RESULT " + json.dumps({
        "step_s": float(np.median(np.diff(marks))),
        "fit_s": time.monotonic() - t0,
        "loss": float(np.mean(losses[-10:])),
    }), flush=True)


if __name__ == "__main__":
    main()
