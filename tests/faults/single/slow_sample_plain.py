"""Samples take long to make, in a loop without a framework."""

from pathlib import Path

import torch
from torch.nn import functional

from faults.base import script
from faults.loads import Nap, Paced, Samples, loader
from trainperf.loop import LoopMonitor


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    model = Paced()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    monitor = LoopMonitor(out, report=False).watch(model, optimizer)
    with monitor:
        for rows, labels in monitor.batches(loader(Samples(Nap(0.0 if fixed else 300e-6)))):
            with monitor.phase("forward"):
                loss = functional.cross_entropy(model(rows), labels)
            with monitor.phase("backward"):
                optimizer.zero_grad()
                loss.backward()
            with monitor.phase("optimizer"):
                optimizer.step()
            monitor.end_step(loss)
