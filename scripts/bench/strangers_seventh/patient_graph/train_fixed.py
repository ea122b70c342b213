"""Diagnosis prediction on a population graph of patients (transductive graph convolution)."""
import json
import math
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    patients: int = 1200
    regions: int = 512
    diagnoses: int = 4
    hidden: int = 192
    dropout: float = 0.3
    kernel_width: float = 1.0
    labelled: float = 0.5
    steps: int = 200
    eval_every: int = 25
    lr: float = 3e-3
    weight_decay: float = 1e-4
    seed: int = 3


def simulate_cohort(cfg):
    rng = np.random.default_rng(cfg.seed)
    diagnosis = rng.integers(0, cfg.diagnoses, cfg.patients)
    age = rng.normal(45 + 4 * diagnosis, 12)
    site = rng.integers(0, 6, cfg.patients)
    prototypes = rng.normal(0, 0.12, (cfg.diagnoses, cfg.regions))
    imaging = prototypes[diagnosis] + rng.normal(0, 1.0, (cfg.patients, cfg.regions))
    imaging += 0.3 * rng.normal(0, 1, (6, cfg.regions))[site]
    return (torch.from_numpy(imaging.astype(np.float32)),
            torch.from_numpy(age.astype(np.float32)),
            torch.from_numpy(site),
            torch.from_numpy(diagnosis))


def similarity_graph(imaging, age, site, width):
    profile = F.normalize(imaging - imaging.mean(0), dim=1)
    distance = torch.cdist(profile, profile)
    imaging_kernel = torch.exp(-distance.square() / (2 * width ** 2))
    age_kernel = torch.exp(-(age[:, None] - age[None, :]).square() / (2 * 10.0 ** 2))
    same_site = (site[:, None] == site[None, :]).float()
    adjacency = imaging_kernel * (0.2 + age_kernel + 0.5 * same_site)
    adjacency.fill_diagonal_(0)
    return adjacency


def normalize_adjacency(adjacency):
    with_loops = adjacency + torch.eye(adjacency.size(0))
    degree = with_loops.sum(dim=1)
    d_inv_sqrt = torch.diag(degree.pow(-0.5))
    return torch.mm(torch.mm(d_inv_sqrt, with_loops), d_inv_sqrt)


class GraphConvolution(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_in, fan_out))
        self.self_weight = nn.Parameter(torch.empty(fan_in, fan_out))
        self.bias = nn.Parameter(torch.zeros(fan_out))
        bound = 1 / math.sqrt(fan_out)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.self_weight, -bound, bound)

    def forward(self, x, propagate):
        return propagate @ (x @ self.weight) + x @ self.self_weight + self.bias


class PopulationGCN(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv1 = GraphConvolution(cfg.regions, cfg.hidden)
        self.conv2 = GraphConvolution(cfg.hidden, cfg.hidden)
        self.norm = nn.LayerNorm(cfg.hidden)
        self.classify = nn.Linear(cfg.hidden, cfg.diagnoses)
        self.dropout = cfg.dropout

    def forward(self, x, propagate):
        x = F.dropout(x, self.dropout, self.training)
        x = F.relu(self.conv1(x, propagate))
        x = F.dropout(x, self.dropout, self.training)
        x = F.relu(self.norm(self.conv2(x, propagate)))
        return self.classify(x)


@torch.no_grad()
def evaluate(model, x, propagate, labels, mask):
    model.eval()
    logits = model(x, propagate)
    model.train()
    predicted = logits.argmax(1)
    accuracy = (predicted[mask] == labels[mask]).float().mean().item()
    recalls = []
    for diagnosis in labels.unique():
        members = mask & (labels == diagnosis)
        recalls.append((predicted[members] == diagnosis).float().mean().item())
    return accuracy, float(np.mean(recalls))


def main():
    start = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    imaging, age, site, labels = simulate_cohort(cfg)
    imaging = (imaging - imaging.mean(0)) / imaging.std(0)
    adjacency = similarity_graph(imaging, age, site, cfg.kernel_width)
    train_mask = torch.rand(cfg.patients) < cfg.labelled
    test_mask = ~train_mask
    print(f"{cfg.patients} patients, {int(train_mask.sum())} labelled, "
          f"mean edge weight {adjacency.mean():.3f}")

    propagate = normalize_adjacency(adjacency)
    model = PopulationGCN(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.steps)
    folder = tempfile.mkdtemp(prefix="patients_")
    best = 0.0

    losses, ends = [], []
    for step in range(1, cfg.steps + 1):
        logits = model(imaging, propagate)
        loss = F.cross_entropy(logits[train_mask], labels[train_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        ends.append(time.perf_counter())
        if step % cfg.eval_every == 0:
            accuracy, recall = evaluate(model, imaging, propagate, labels, test_mask)
            print(f"step {step} loss {np.mean(losses[-cfg.eval_every:]):.4f} "
                  f"test accuracy {accuracy:.3f} balanced {recall:.3f}")
            if accuracy > best:
                best = accuracy
                torch.save(model.state_dict(), os.path.join(folder, "best.pt"))

    print(f"best test accuracy {best:.3f}")
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(ends))),
                                  "fit_s": time.perf_counter() - start,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
