"""Credit default with a neural additive model: one small net per feature, summed."""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FEATURES = 56


def applicants(n, seed=1):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, FEATURES, generator=g)
    shape = torch.randn(3, FEATURES, generator=g) * (torch.rand(FEATURES, generator=g) < 0.5)
    score = (shape[0] * x + shape[1] * torch.sin(2 * x) + 0.5 * shape[2] * x.square().clamp(max=4)).sum(1)
    score = (score - score.mean()) / score.std()
    return x, (torch.rand(n, generator=g) < torch.sigmoid(2.5 * score)).float()


class FeatureNet(nn.Module):
    """The shape function of one feature."""

    def __init__(self, hidden):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(1, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class NAM(nn.Module):
    def __init__(self, features, hidden=24, dropout=0.1):
        super().__init__()
        self.nets = nn.ModuleList(FeatureNet(hidden) for _ in range(features))
        self.dropout = nn.Dropout(dropout)
        self.bias = nn.Parameter(torch.zeros(1))

    def contributions(self, x):
        return torch.cat([net(x[:, i:i + 1]) for i, net in enumerate(self.nets)], dim=1)

    def forward(self, x):
        parts = self.contributions(x)
        return self.dropout(parts).sum(1) + self.bias, parts


def batches(x, y, size, generator):
    order = torch.randperm(len(x), generator=generator)
    for chunk in order.split(size)[:len(x) // size]:
        yield x[chunk], y[chunk]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--applicants", type=int, default=15360)
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--penalty", type=float, default=1e-3, help="on the size of the contributions")
    ap.add_argument("--lr", type=float, default=3e-3)
    args = ap.parse_args()
    torch.manual_seed(0)
    x, y = applicants(args.applicants)
    model = NAM(FEATURES)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    shuffle = torch.Generator().manual_seed(3)
    losses, stamps = [], []
    start = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for xb, yb in batches(x, y, args.batch_size, shuffle):
            logits, parts = model(xb)
            loss = F.binary_cross_entropy_with_logits(logits, yb) + args.penalty * parts.square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            stamps.append(time.perf_counter())
        schedule.step()
        print(f"epoch {epoch} steps {len(losses)} loss {sum(losses[-30:]) / 30:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-30:]) / 30,
    }))


if __name__ == "__main__":
    main()
