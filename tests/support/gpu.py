"""What the tests on CUDA share: work of a known length, and a measured plain loop."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from support.fits import Ran, assert_tiles, read

from trainperf.loop import LoopMonitor


DEVICE = "cuda"

ON_GPU: dict[str, Any] = {"accelerator": "gpu", "devices": 1}
"""Trainer options for the tests' quiet Trainer."""


class DeviceWork:
    """Keeps the device busy about as long as it is asked to, and the host hardly at all."""

    def __init__(self) -> None:
        self._matrix = torch.ones(4096, 4096, device=DEVICE)
        self._out = torch.empty_like(self._matrix)
        self._multiply(3)  # the first ones load kernels
        self._each_ms = self._measured_ms(10) / 10

    def queue(self, ms: float) -> None:
        """Queue it; returns at once."""
        self._multiply(math.ceil(ms / self._each_ms))

    def _multiply(self, times: int) -> None:
        for _ in range(times):
            torch.mm(self._matrix, self._matrix, out=self._out)

    def _measured_ms(self, times: int) -> float:
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        self._multiply(times)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


def plain_loop(
    root: Path,
    model: torch.nn.Module,
    loader: Iterable[torch.Tensor],
    after_step: Callable[[], None],
) -> Ran:
    """Train on what the loader yields, call *after_step* behind each step, and read the run."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    monitor = LoopMonitor(root, report=False).watch(model, optimizer, device=DEVICE)
    for batch in monitor.batches(loader):
        with monitor.phase("h2d"):
            data = batch.to(DEVICE, non_blocking=True)
        with monitor.phase("forward"):
            loss = model(data).mean()
        with monitor.phase("backward"):
            loss.backward()
        with monitor.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        monitor.end_step(loss)
        after_step()
    monitor.close()
    assert monitor.run is not None
    ran = read(monitor.run)
    assert_tiles(ran)
    return ran


def known(ran: Ran, fact: str) -> list[float]:
    """A fact that every step must have."""
    values = [value for value in ran.fact(fact) if value is not None]
    assert len(values) == len(ran.steps)
    return values
