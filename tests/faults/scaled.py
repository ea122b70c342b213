"""A plain loop under a GradScaler whose gradients overflow in chosen steps."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

from faults.calm import Ready, calm
from trainperf.loop import LoopMonitor


def train_scaled(out: Path, *, steps: int, overflows: Callable[[int], bool]) -> None:
    """So many steps; where told to, the loss is infinitely larger."""
    model = calm()
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with LoopMonitor(out, report=False).watch(model, optimizer, scaler) as monitor:
        for step, (rows, labels) in enumerate(monitor.batches(Ready(steps))):
            with monitor.phase("forward"):
                loss = functional.cross_entropy(model(rows), labels)
            with monitor.phase("backward"):
                scaler.scale(loss * float("inf") if overflows(step) else loss).backward()
            with monitor.phase("optimizer"):
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            monitor.end_step(loss)
