"""A probe of the user's takes a millisecond of every step: measuring is what costs."""

import time
from pathlib import Path

import torch
from torch.nn import functional

from faults.base import script
from faults.calm import ROWS, WIDTH, calm
from trainperf.loop import LoopMonitor
from trainperf.recording.probes.base import Batch, Probe


class Slow(Probe):
    """Measures nothing, slowly."""

    name = "slow"

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Nothing, after a while."""
        del batch, loss
        time.sleep(0.001)


@script("own_cost")
def _train(out: Path, *, fixed: bool) -> None:
    model = calm()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, fused=True)
    monitor = LoopMonitor(out, report=False, probes=[] if fixed else [Slow()])
    batch = torch.randn(ROWS, WIDTH), torch.randint(0, 10, (ROWS,))
    with monitor.watch(model, optimizer):
        for rows, labels in monitor.batches([batch] * 100):
            optimizer.zero_grad()
            with monitor.phase("forward"):
                loss = functional.cross_entropy(model(rows), labels)
            with monitor.phase("backward"):
                loss.backward()  # type: ignore[no-untyped-call]
            with monitor.phase("optimizer"):
                optimizer.step()
            monitor.end_step(loss.detach())
