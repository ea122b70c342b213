"""A loop of one's own over the rows of a batch: forward and backward for each of them."""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from faults.base import script
from faults.operators import adamw, ready
from trainperf.loop import LoopMonitor


@script("equal_passes")
def _train(out: Path, *, fixed: bool) -> None:
    layers = (nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    model = nn.Sequential(*layers)
    optimizer = adamw(fused=True)(model.parameters())
    monitor = LoopMonitor(out, report=False, audit_at=12).watch(model, optimizer)
    with monitor:
        for rows, labels in monitor.batches(ready(60, 64, size=32)):
            optimizer.zero_grad()
            parts = 1 if fixed else len(rows)
            for inputs, targets in zip(rows.chunk(parts), labels.chunk(parts), strict=True):
                loss = functional.cross_entropy(model(inputs), targets) / parts
                loss.backward()
            optimizer.step()
            monitor.end_step(torch.zeros(()))
