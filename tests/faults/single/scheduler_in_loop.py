"""A plain loop that steps its scheduler with every micro-batch."""

from pathlib import Path

import torch
from torch.nn import functional

from faults.base import script
from faults.calm import Ready, calm
from trainperf.loop import LoopMonitor


MICRO_BATCHES = 4


@script("scheduler_per_micro_batch")
def _train(out: Path, *, fixed: bool) -> None:
    model = calm(0.002)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    monitor = LoopMonitor(out, report=False).watch(model, optimizer, schedulers=scheduler)
    with monitor:
        for number, (rows, labels) in enumerate(monitor.batches(Ready(200)), start=1):
            with monitor.phase("forward"):
                loss = functional.cross_entropy(model(rows), labels) / MICRO_BATCHES
            with monitor.phase("backward"):
                loss.backward()
            complete = number % MICRO_BATCHES == 0
            if complete:
                with monitor.phase("optimizer"):
                    optimizer.step()
                    optimizer.zero_grad()
                monitor.end_step(loss)
            if complete or not fixed:
                scheduler.step()
