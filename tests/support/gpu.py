"""What the tests on an accelerator share: on a GPU where there is one, else on streams in threads.

Work of a known length, slow hosts and copies, waits that raise, and a measured plain loop.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from support.device import plants
from support.device.build import extension
from support.device.frontend import NAME
from support.device.lightning import on_device
from support.fits import Ran, assert_tiles, awake, read
from support.loops import learn

from trainperf.loop import LoopMonitor


SIMULATED = not torch.accelerator.is_available()
"""Asked before the device in threads is attached."""

_REAL = None if SIMULATED else torch.accelerator.current_accelerator()
DEVICE = NAME if _REAL is None else _REAL.type


def trainer_options() -> dict[str, Any]:
    """Trainer options for the tests' quiet Trainer."""
    return on_device() if SIMULATED else {"accelerator": "gpu", "devices": 1}


def backend() -> ModuleType:
    """What torch has under the device's name."""
    return torch.get_device_module(DEVICE)


class DeviceWork:
    """Keeps the device busy about as long as it is asked to, and the host hardly at all."""

    def __init__(self) -> None:
        if SIMULATED:
            return
        self._matrix = torch.ones(4096, 4096, device=DEVICE)
        self._out = torch.empty_like(self._matrix)
        self._multiply(3)  # the first ones load kernels
        self._each_ms = self._measured_ms(10) / 10

    def queue(self, ms: float) -> None:
        """Queue it; returns at once."""
        if SIMULATED:
            plants.work(ms)
        else:
            self._multiply(math.ceil(ms / self._each_ms))

    def _multiply(self, times: int) -> None:
        for _ in range(times):
            torch.mm(self._matrix, self._matrix, out=self._out)

    def _measured_ms(self, times: int) -> float:
        begin, end = (torch.Event(device=DEVICE, enable_timing=True) for _ in range(2))
        begin.record(torch.accelerator.current_stream())
        self._multiply(times)
        end.record(torch.accelerator.current_stream())
        end.synchronize()
        return begin.elapsed_time(end)


def slow_host() -> None:
    """Let a launch take the host longer than a small kernel the device; a GPU needs no plant."""
    if SIMULATED:
        plants.slow_launches(0.2)


def slow_copies(ms: float) -> None:
    """Let a copy take much longer than its launch; on a GPU one of many MiB does."""
    if SIMULATED:
        plants.slow_copies(latency_ms=ms)


class Graph:
    """What is queued inside `capture()`, to be replayed."""

    def __init__(self) -> None:
        self._graph: Any = plants.Graph() if SIMULATED else torch.cuda.CUDAGraph()
        begun = partial(torch.cuda.graph, self._graph)
        self._captured: Any = self._graph.capture if SIMULATED else begun

    def capture(self, mode: str) -> AbstractContextManager[None]:
        """In it nothing runs, and nobody may ask the device; the mode is torch's."""
        return self._captured(capture_error_mode=mode)

    def replay(self) -> None:
        """Run it again, as one launch."""
        self._graph.replay()


@contextmanager
def copies_us() -> Iterator[list[float]]:
    """Fill the list with the length of each copy to the device, as the device itself tells."""
    lengths: list[float] = []
    if SIMULATED:
        with plants.recorded_spans() as spans:
            yield lengths
        lengths += [span.ms * 1e3 for span in spans if span.name == "memcpy_to_device"]
        return
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        yield lengths
    copies = [event for event in profile.events() or () if event.name.startswith("Memcpy HtoD")]
    lengths += [event.time_range.elapsed_us() for event in copies]


def refuse_waits() -> None:
    """From here on a synchronising call raises."""
    if SIMULATED:
        extension().refuse_syncs(True)
    else:
        torch.cuda.set_sync_debug_mode("error")


def allow_waits() -> None:
    """Up to here."""
    if SIMULATED:
        extension().refuse_syncs(False)
    else:
        torch.cuda.set_sync_debug_mode("default")


def plain_loop(
    root: Path,
    model: torch.nn.Module,
    loader: Iterable[torch.Tensor],
    after_step: Callable[[], None] = awake,
) -> Ran:
    """Train on what the loader yields, call *after_step* behind each step, and read the run."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    monitor = LoopMonitor(root, report=False).watch(model, optimizer, device=DEVICE)
    for batch in monitor.batches(loader):
        with monitor.phase("h2d"):
            data = batch.to(DEVICE, non_blocking=True)
        with monitor.phase("forward"):
            loss = model(data).mean()
        learn(monitor, optimizer, loss)
        after_step()
    monitor.close()
    ran = read(monitor.run)
    assert_tiles(ran)
    return ran


def known(ran: Ran, fact: str) -> list[float]:
    """A fact that every step must have."""
    values = [value for value in ran.fact(fact) if value is not None]
    assert len(values) == len(ran.steps)
    return values
