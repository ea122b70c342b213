"""Binary income classifier on a census-like table (synthetic)."""
import json
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 7
BATCH = 512
EPOCHS = 7
LR = 1e-3
HIDDEN = 384


def make_frame(n=20_480, seed=SEED):
    rng = np.random.default_rng(seed)
    df = pd.DataFrame(
        {
            "age": rng.integers(17, 90, n),
            "hours": rng.normal(40, 12, n).clip(1, 99),
            "gain": rng.exponential(500, n),
            "education": rng.integers(0, 16, n),
            "occupation": rng.integers(0, 15, n),
            "workclass": rng.integers(0, 8, n),
            "relationship": rng.integers(0, 6, n),
            "country": rng.integers(0, 40, n),
        }
    )
    score = (
        0.03 * (df.age - 40)
        + 0.04 * (df.hours - 40)
        + 0.15 * (df.education - 8)
        + 0.0006 * df.gain
        + 0.4 * np.sin(df.occupation)
        + rng.normal(0, 0.8, n)
    )
    df["label"] = (score > 0.3).astype("float64")
    return df


def to_matrix(df):
    num = df[["age", "hours", "gain"]].astype("float64")
    num = (num - num.mean()) / num.std()
    cat = pd.get_dummies(
        df[["education", "occupation", "workclass", "relationship", "country"]].astype("category"),
        dtype="float64",
    )
    return np.concatenate([num.to_numpy(), cat.to_numpy()], axis=1), df["label"].to_numpy(copy=True)


class IncomeNet(nn.Module):
    def __init__(self, n_in, hidden=HIDDEN):
        super().__init__()
        self.inp = nn.Linear(n_in, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
            for _ in range(2)
        )
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(F.relu(x)).squeeze(-1)


def main():
    torch.manual_seed(SEED)
    X, y = to_matrix(make_frame())
    X = torch.from_numpy(X)
    y = torch.from_numpy(y)

    model = IncomeNet(X.shape[1]).double()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-4)
    gen = torch.Generator().manual_seed(SEED)

    n_steps = 0
    recent = []
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        perm = torch.randperm(len(X), generator=gen)
        total, count = 0.0, 0
        for idx in perm.split(BATCH):
            xb, yb = X[idx], y[idx]
            loss = F.binary_cross_entropy_with_logits(model(xb), yb)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            value = loss.item()
            total += value
            count += 1
            recent.append(value)
            n_steps += 1
            if n_steps == 20:
                t20 = time.perf_counter()
        print(f"epoch {epoch} loss {total / count:.4f}")
    end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (end - t20) / (n_steps - 20),
        "fit_s": end - start,
        "loss": float(np.mean(recent[-40:])),
    }))


if __name__ == "__main__":
    main()
