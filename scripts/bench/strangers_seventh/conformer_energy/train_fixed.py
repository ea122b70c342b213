"""Energies of molecular conformers with a continuous filter network (SchNet style)."""
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

ELEMENTS = np.array([1, 6, 7, 8, 9])
ABUNDANCE = np.array([0.5, 0.32, 0.07, 0.09, 0.02])


@dataclass
class Config:
    train_molecules: int = 3600
    test_molecules: int = 320
    min_atoms: int = 14
    max_atoms: int = 22
    cutoff: float = 4.0
    gaussians: int = 20
    hidden: int = 48
    interactions: int = 2
    batch_size: int = 32
    epochs: int = 3
    lr: float = 2e-3
    log_every: int = 25
    seed: int = 7


def sample_molecule(rng, cfg):
    """A random chain of atoms with a pairwise energy as target."""
    n = int(rng.integers(cfg.min_atoms, cfg.max_atoms + 1))
    numbers = rng.choice(ELEMENTS, n, p=ABUNDANCE)
    jumps = rng.normal(size=(n, 3))
    jumps *= 1.4 / np.linalg.norm(jumps, axis=1, keepdims=True)
    positions = jumps.cumsum(0) + rng.normal(0, 0.15, (n, 3))
    gaps = np.linalg.norm(positions[:, None] - positions[None], axis=-1) + np.eye(n) * 1e3
    energy = (-np.sqrt(np.outer(numbers, numbers)) * np.exp(-gaps / 1.5)).sum() / n - 0.1 * numbers.mean()
    return numbers, positions, energy


def build_graph(numbers, positions, energy, cfg):
    """Neighbours within the cutoff, with expanded distances as edge features."""
    centers = np.linspace(0.0, cfg.cutoff, cfg.gaussians)
    width = centers[1] - centers[0]
    gaps = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    np.fill_diagonal(gaps, np.inf)
    source, target = np.nonzero(gaps < cfg.cutoff)
    distance = gaps[source, target]
    expanded = np.exp(-((distance[:, None] - centers) / width) ** 2)
    envelope = 0.5 * (np.cos(np.pi * distance / cfg.cutoff) + 1.0)
    edges = np.array([source, target])
    return {
        "z": torch.from_numpy(numbers),
        "edges": torch.from_numpy(edges),
        "rbf": torch.from_numpy(np.array(expanded, dtype=np.float32)),
        "envelope": torch.from_numpy(np.array(envelope, dtype=np.float32)),
        "energy": torch.tensor(energy, dtype=torch.float32),
    }


def collate(graphs):
    sizes = torch.tensor([len(g["z"]) for g in graphs])
    offsets = sizes.cumsum(0) - sizes
    return {
        "z": torch.cat([g["z"] for g in graphs]),
        "edges": torch.cat([g["edges"] + o for g, o in zip(graphs, offsets)], dim=1),
        "rbf": torch.cat([g["rbf"] for g in graphs]),
        "envelope": torch.cat([g["envelope"] for g in graphs]),
        "molecule": torch.repeat_interleave(torch.arange(len(graphs)), sizes),
        "energy": torch.stack([g["energy"] for g in graphs]),
    }


class Interaction(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(cfg.gaussians, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, cfg.hidden))
        self.inside = nn.Linear(cfg.hidden, cfg.hidden, bias=False)
        self.outside = nn.Sequential(nn.Linear(cfg.hidden, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, cfg.hidden))

    def forward(self, h, batch):
        weight = self.filter(batch["rbf"]) * batch["envelope"].unsqueeze(1)
        message = self.inside(h).index_select(0, batch["edges"][0]) * weight
        return h + self.outside(torch.zeros_like(h).index_add(0, batch["edges"][1], message))


class EnergyNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(10, cfg.hidden)
        self.interactions = nn.ModuleList(Interaction(cfg) for _ in range(cfg.interactions))
        self.readout = nn.Sequential(nn.Linear(cfg.hidden, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, 1))

    def forward(self, batch):
        h = self.embed(batch["z"])
        for layer in self.interactions:
            h = layer(h, batch)
        atoms = self.readout(h).squeeze(1)
        total = torch.zeros_like(batch["energy"])
        return total.index_add(0, batch["molecule"], atoms) / torch.bincount(batch["molecule"])


@torch.inference_mode()
def mean_absolute_error(model, loader, scale):
    model.eval()
    error = sum((model(batch) - batch["energy"]).abs().sum().item() for batch in loader)
    model.train()
    return error / len(loader.dataset) * scale


def main():
    begin = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    graphs = [build_graph(*sample_molecule(rng, cfg), cfg) for _ in range(cfg.train_molecules + cfg.test_molecules)]
    energies = torch.stack([g["energy"] for g in graphs[:cfg.train_molecules]])
    shift, scale = energies.mean(), energies.std()
    for graph in graphs:
        graph["energy"] = (graph["energy"] - shift) / scale
    print(f"{len(graphs)} conformers, {statistics.fmean(g['edges'].shape[1] for g in graphs):.0f} edges each")

    train = DataLoader(graphs[:cfg.train_molecules], cfg.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    test = DataLoader(graphs[cfg.train_molecules:], 64, collate_fn=collate)
    model = EnergyNet(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * len(train))

    losses, durations, step = [], [], 0
    mark = time.perf_counter()
    for epoch in range(cfg.epochs):
        for batch in train:
            loss = F.smooth_l1_loss(model(batch), batch["energy"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            step += 1
            if step % cfg.log_every == 0:
                print(f"epoch {epoch} step {step} loss {statistics.fmean(losses[-cfg.log_every:]):.4f}")
            now = time.perf_counter()
            durations.append(now - mark)
            mark = now
        print(f"epoch {epoch} test mae {mean_absolute_error(model, test, scale.item()):.4f}")
    with tempfile.TemporaryDirectory(prefix="conformers_") as tmp:
        torch.save({"model": model.state_dict(), "shift": shift, "scale": scale}, Path(tmp) / "energy_net.pt")

    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(durations), 5),
        "fit_s": round(time.perf_counter() - begin, 2),
        "loss": round(statistics.fmean(losses[-10:]), 5),
    }))


if __name__ == "__main__":
    main()
