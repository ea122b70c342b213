"""One call of a step: how long it takes, its peak memory, and what it returned.

The harness of benchmarks and smoke tests.  The clock is that of `torch.utils.benchmark`: it waits
for the accelerator before it is read, so a duration is from an idle device to an idle device.

On CUDA peak memory is the allocator's own, exact.  On a CPU it is the resident set of the process,
sampled every millisecond from another thread: a peak between two samples is missed, so a call with
too few samples has no peak but a reason.

A result is the loss if there is one (a scalar, the first element of a tuple, the entry `loss` of a
mapping, the attribute `loss`), else the tensor an inference function returned.
"""

import gc
import math
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import numpy as np
import psutil
import torch
from torch.utils.benchmark import Measurement, TaskSpec
from torch.utils.benchmark.utils.timer import timer as synchronised_clock

from trainperf.audit.loader.probe_loader import random_state_kept
from trainperf.core.formatting.units import plural


__all__ = ["Clock", "graphs_built", "median_and_iqr", "quiet", "seconds_of", "synchronised_clock"]

Clock = Callable[[], float]
"""Seconds on a monotonic clock that waits for the device before it is read."""


def seconds_of(call: Callable[[], object], calls: int, clock: Clock) -> float:
    """Mean seconds of one of *calls* calls, between two readings of a synchronised clock.

    What the calls return is dropped at once, so that no graph of one lives during the next.
    """
    begin = clock()
    for _ in range(calls):
        call()
    return (clock() - begin) / calls


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection inside, as in `timeit`: a pause is not the step's own time."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def median_and_iqr(times_s: tuple[float, ...]) -> tuple[float, float]:
    """Median and interquartile range as `torch.utils.benchmark` computes them, in seconds."""
    spec = TaskSpec(stmt="step(batch)", setup="pass", num_threads=torch.get_num_threads())
    measured = Measurement(number_per_run=1, raw_times=list(times_s), task_spec=spec)
    return float(measured.median), float(measured.iqr)


def graphs_built() -> int | None:
    """Graphs that `torch.compile` has built in this process, by torch's own private statistics.

    0 before the compiler was first used, which this does not import; `None` where torch does not
    count.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return 0
    counters = getattr(dynamo, "counters", None)
    return None if counters is None else int(counters["stats"].get("unique_graphs", 0))


LEAST_SAMPLES = 5
"""Fewer samples of the resident set during a call are no measurement of its peak."""

_PAUSE_S = 0.001


class PeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory during one call after the warm-up, outside the timed ones."""

    source: str
    """`CUDA allocator` (exact), or `resident set` (whole process, sampled: a lower bound)."""
    peak_bytes: int | None = None
    above_start_bytes: int | None = None
    """Memory that the call added.  On a CPU, memory that the process kept from an earlier call is
    reused without showing here."""
    reason: str = ""
    """Why nothing was measured."""


def peak_memory(call: Callable[[], object]) -> PeakMemory:
    """Peak memory during one call, of the current device.

    Resets CUDA's peak statistics.  Calls twice where the call does not use the device.
    """
    if torch.cuda.is_available():
        memory = _allocated(call)
        if memory.peak_bytes:
            return memory
    # No CUDA memory at all: the call runs on the host, although there is a device.
    return _resident(call)


def _allocated(call: Callable[[], object]) -> PeakMemory:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    return PeakMemory(source="CUDA allocator", peak_bytes=peak, above_start_bytes=peak - before)


def _resident(call: Callable[[], object]) -> PeakMemory:
    sampler = _Sampler()
    before = sampler.resident()
    sampler.start()
    try:
        call()
    finally:
        sampler.stop()
    if sampler.samples < LEAST_SAMPLES:
        reason = (
            f"the resident set was sampled {plural(sampler.samples, 'time')} during the call, "
            f"fewer than {LEAST_SAMPLES}: the call is too short"
        )
        return PeakMemory(source="resident set", reason=reason)
    above = max(0, sampler.peak - before)
    return PeakMemory(source="resident set", peak_bytes=sampler.peak, above_start_bytes=above)


class _Sampler:
    """Samples this process's resident set until stopped."""

    def __init__(self) -> None:
        self.samples = 0
        self.peak = 0
        self._process = psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trainperf-memory", daemon=True)

    def resident(self) -> int:
        """The resident set now, in bytes."""
        return int(self._process.memory_info().rss)

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling; returns after the last sample."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.is_set():
            self.peak = max(self.peak, self.resident())
            self.samples += 1
            self._over.wait(_PAUSE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one call returned, copied to the host and freed of its graph."""

    values: torch.Tensor
    """float64, flat; one element for a loss."""
    shape: tuple[int, ...]

    @property
    def loss(self) -> float | None:
        """The only value, if there is only one."""
        return float(self.values[0]) if self.values.numel() == 1 else None

    def difference(self, other: "StepResult") -> float | None:
        """Largest difference relative to the largest value; `None` for different shapes.

        Infinite where one of the two is not finite: NaN agrees with nothing.
        """
        if self.shape != other.shape:
            return None
        if not bool(torch.isfinite(self.values).all() and torch.isfinite(other.values).all()):
            return math.inf
        if not self.values.numel():
            return 0.0
        apart = float((self.values - other.values).abs().max())
        size = float(torch.maximum(self.values.abs().max(), other.values.abs().max()))
        return apart / size if apart else 0.0


def result_of(returned: object) -> StepResult | None:
    """The loss or the output in what a step *returned*; `None` if there is neither."""
    result = _pick(returned)
    if isinstance(result, torch.Tensor):
        shape = tuple(result.shape) if result.numel() != 1 else ()
        return StepResult(values=result.detach().to("cpu", torch.float64).flatten(), shape=shape)
    if isinstance(result, int | float) and not isinstance(result, bool):
        return StepResult(values=torch.tensor([result], dtype=torch.float64), shape=())
    return None


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, Python, NumPy and torch (all devices) draw from *seed*; their state is restored."""
    with random_state_kept(range(torch.cuda.device_count())):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 the generator that the user's code draws from
        torch.manual_seed(seed)
        yield


def _pick(returned: object) -> object:
    if isinstance(returned, Mapping):
        return _pick(returned["loss"]) if "loss" in returned else _first(list(returned.values()))
    loss = getattr(returned, "loss", None)
    if loss is not None and not isinstance(returned, torch.Tensor):
        return loss
    if isinstance(returned, list | tuple):
        return _first(returned)
    return returned


def _first(values: "list[object] | tuple[object, ...]") -> object:
    return _pick(values[0]) if values else None
