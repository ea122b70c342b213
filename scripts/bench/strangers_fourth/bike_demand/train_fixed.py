"""Hourly demand at bike rental stations: an MLP with embeddings for station, weekday and hour.

The table has the columns of the usual trip exports (one row per station and hour).
"""
import argparse
import json
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMERIC = ["temp", "feels_like", "humidity", "wind", "rain_mm", "lag_1", "lag_24", "lag_168"]
CATEGORICAL = {"station": 120, "weekday": 7, "hour": 24}
TARGET = "log_count"


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=24000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--max-steps", type=int, default=0, help="stop early, for a trial")
    parser.add_argument("--seed", type=int, default=11)
    return parser.parse_args()


def load_table(rows, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.integers(0, n, rows) for name, n in CATEGORICAL.items()})
    for name in NUMERIC:
        frame[name] = rng.normal(size=rows)
    frame["holiday"] = rng.random(rows) < 0.03
    popularity = rng.normal(size=CATEGORICAL["station"])
    rush = np.exp(-((frame["hour"] - 8) ** 2) / 6) + np.exp(-((frame["hour"] - 17) ** 2) / 8)
    frame[TARGET] = (
        popularity[frame["station"]]
        + rush * (frame["weekday"] < 5)
        + 0.5 * frame["temp"]
        - 0.4 * np.maximum(frame["rain_mm"], 0)
        + 0.6 * frame["lag_24"]
        - 0.7 * frame["holiday"]
        + 0.1 * rng.normal(size=rows)
    )
    return frame


def normalise(frame):
    frame = frame.copy()
    for name in NUMERIC:
        frame[name] = (frame[name] - frame[name].mean()) / frame[name].std()
    return frame


class RentalHours(Dataset):
    def __init__(self, frame):
        columns = frame[[*NUMERIC, "holiday"]].to_numpy(dtype="float32")
        self.numeric = torch.from_numpy(columns)
        self.codes = torch.from_numpy(frame[list(CATEGORICAL)].to_numpy(dtype="int64"))
        self.target = torch.from_numpy(frame[TARGET].to_numpy(dtype="float32"))

    def __len__(self):
        return len(self.target)

    def __getitem__(self, index):
        return self.numeric[index], self.codes[index], self.target[index]


class DemandNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(n, 16) for n in CATEGORICAL.values()])
        width = len(NUMERIC) + 1 + 16 * len(CATEGORICAL)
        self.body = nn.Sequential(
            nn.Linear(width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, numeric, codes):
        looked_up = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        return self.body(torch.cat([numeric, *looked_up], dim=1)).squeeze(1)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    dataset = RentalHours(normalise(load_table(args.rows, args.seed)))
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)

    model = DemandNet(args.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    criterion = nn.SmoothL1Loss()

    losses, ends = [], []
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        running = 0.0
        for i, (numeric, codes, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(numeric, codes), target)
            loss.backward()
            optimizer.step()
            running += loss.item()
            losses.append(loss.item())
            ends.append(time.perf_counter())
            if (i + 1) % 50 == 0:
                print(f"epoch {epoch} batch {i + 1}/{len(loader)} loss {running / (i + 1):.4f}", flush=True)
            if args.max_steps and len(losses) >= args.max_steps:
                break
        if args.max_steps and len(losses) >= args.max_steps:
            break
    result = {
        "step_s": (ends[-1] - ends[4]) / (len(ends) - 5),
        "fit_s": time.perf_counter() - begin,
        "loss": float(np.mean(losses[-10:])),
    }
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
