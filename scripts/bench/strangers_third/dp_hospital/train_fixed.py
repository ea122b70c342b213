"""Readmission risk with differentially private SGD (clipped per-patient gradients + noise)."""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--patients", type=int, default=8000)
    p.add_argument("--features", type=int, default=48)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--lr", type=float, default=0.3)
    p.add_argument("--max-norm", type=float, default=1.0)
    p.add_argument("--sigma", type=float, default=0.6)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def make_patients(n, features):
    x = torch.randn(n, features)
    x[:, : features // 3] = (x[:, : features // 3] > 0.8).float()
    w = torch.randn(features, 8) / features ** 0.5
    risk = torch.tanh(x @ w).sum(1) + 0.3 * torch.randn(n)
    return x, (risk > risk.median()).long()


class RiskNet(nn.Module):
    def __init__(self, features, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, 2),
        )

    def forward(self, x):
        return self.net(x)


def private_gradients(model, x, y, max_norm):
    """Sum over the batch of each patient's gradient, clipped to max_norm."""
    params = {name: p.detach() for name, p in model.named_parameters()}

    def patient_loss(params, x, y):
        loss = F.cross_entropy(functional_call(model, params, (x.unsqueeze(0),)), y.unsqueeze(0))
        return loss, loss

    grads, losses = vmap(grad(patient_loss, has_aux=True), in_dims=(None, 0, 0))(params, x, y)
    norm = torch.sqrt(sum(g.flatten(1).pow(2).sum(1) for g in grads.values()))
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    total = [torch.tensordot(scale, g, dims=1) for g in grads.values()]
    return total, losses.mean().item()


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    x, y = make_patients(args.patients, args.features)
    model = RiskNet(args.features)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.5)

    stamps, losses = [], []
    start = time.perf_counter()
    for step in range(args.steps):
        pick = torch.randint(args.patients, (args.batch,))
        total, loss = private_gradients(model, x[pick], y[pick], args.max_norm)
        for p, g in zip(model.parameters(), total):
            noise = args.sigma * args.max_norm * torch.randn_like(g)
            p.grad = (g + noise) / args.batch
        optimizer.step()
        losses.append(loss)
        stamps.append(time.perf_counter())
        if step % 40 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    fit_s = time.perf_counter() - start
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    print(f"accuracy {accuracy:.3f}")
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-10:]) / 10,
    }), flush=True)


if __name__ == "__main__":
    main()
