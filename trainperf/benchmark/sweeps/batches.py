"""Batch-size sweep: the same step over batch sizes and sequence lengths.

Each point is a `benchmark_step` of its own, the smallest batch first.  The first batch that does
not fit ends its length; the largest that fits is then searched for below it.
"""

import ctypes
import gc
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import msgspec
import torch

from trainperf.audit.out_of_memory import out_of_memory
from trainperf.benchmark.calls import (
    PeakMemory,
    graphs_built,
    peak_memory,
    seconds_of,
    synchronised_clock,
)
from trainperf.benchmark.steps import StepBenchmark, benchmark_step
from trainperf.benchmark.sweeps.batch_results import Sweep, SweepPoint
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.units import size


Batch = TypeVar("Batch")

_WARMUP = 3
_SAMPLED_S = 0.03
"""Shorter calls are repeated while their memory is sampled: a single one is over too soon."""
_NEAR = 8
"""The search for the largest batch that fits ends within an eighth of it."""


def sweep(
    step: Callable[[Batch], object],
    make_batch: Callable[[int, int], Batch],
    batch_sizes: Sequence[int],
    lengths: Sequence[int] = (1,),
    *,
    repeat: int = 10,
    limit_bytes: int | None = None,
) -> Sweep:
    """Time *step* on batches of every size and length, and find where more stops to help.

    The step keeps training from point to point.  A batch does not fit if memory runs out or a later
    call's peak is above *limit_bytes*; its memory is returned and the sweep continues.  A step that
    fails may leave half of its gradients, so let it begin with `zero_grad`.

    Args:
        step: Takes a batch; the same function for all.
        make_batch: Makes a batch of a size and a length, without padding: that would count too.
        batch_sizes: To try, in any order.
        lengths: Of sequences; by default the unit is samples, and *make_batch* gets 1.
        repeat: Timed calls at each point, after three warm-up calls.
        limit_bytes: Memory limit: of CUDA's allocator, or on a CPU of this process's resident set,
            which may exceed it once per length before the sweep notices.

    Raises:
        ConfigError: A value is refused; the message says which.
    """
    sizes = _ascending("batch_sizes", batch_sizes)
    longer = _ascending("lengths", lengths)
    if limit_bytes is not None and limit_bytes < 1:
        raise ConfigError(f"limit_bytes={limit_bytes}: must be at least 1, or None for no limit")
    trial = _Trial(step=step, make_batch=make_batch, repeat=repeat, limit_bytes=limit_bytes)
    points = [point for length in longer for point in _of_length(trial, sizes, length)]
    return Sweep(
        unit="samples" if longer == (1,) else "tokens",
        limit_bytes=limit_bytes,
        points=tuple(sorted(points, key=lambda point: (point.length, point.batch_size))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial(Generic[Batch]):
    """What is measured at every point."""

    step: Callable[[Batch], object]
    make_batch: Callable[[int, int], Batch]
    repeat: int
    limit_bytes: int | None

    def point(self, batch_size: int, length: int) -> SweepPoint:
        """Measure one point, then return its memory."""
        before = graphs_built()
        point = SweepPoint(batch_size=batch_size, length=length)
        try:
            measured = self._measured(point)
        except (RuntimeError, MemoryError) as error:
            reason = _reason(error)
            if reason is None:
                raise
            measured = msgspec.structs.replace(point, refused=reason)
        _give_back()
        after = graphs_built()
        built = None if before is None or after is None else after - before
        return msgspec.structs.replace(measured, recompiles=built)

    def _measured(self, point: SweepPoint) -> SweepPoint:
        batch = self.make_batch(point.batch_size, point.length)
        benchmark = benchmark_step(self.step, batch, _WARMUP, self.repeat)
        memory = _memory(partial(self.step, batch), benchmark)
        peak, limit = memory.peak_bytes, self.limit_bytes
        over = ""
        if peak is not None and limit is not None and peak > limit:
            over = f"peak {size(peak)}, limit {size(limit)}"
        return msgspec.structs.replace(
            point,
            refused=over,
            cold_s=benchmark.cold_s,
            median_s=None if over else benchmark.median_s,
            iqr_s=None if over else benchmark.iqr_s,
            memory=memory,
            noisy=any(warning.startswith("noisy") for warning in benchmark.warnings),
        )


def _of_length(trial: _Trial[Batch], sizes: Sequence[int], length: int) -> list[SweepPoint]:
    """Points in ascending order up to the first that does not fit, then the search before it."""
    points: list[SweepPoint] = []
    fits = 0
    for batch_size in sizes:
        points.append(trial.point(batch_size, length))
        if points[-1].refused:
            break
        fits = batch_size
    if not fits or not points[-1].refused:
        return points
    refused = points[-1].batch_size
    while refused - fits > max(1, fits // _NEAR):
        points.append(trial.point((fits + refused) // 2, length))
        if points[-1].refused:
            refused = points[-1].batch_size
        else:
            fits = points[-1].batch_size
    return points


def _memory(call: Callable[[], object], benchmark: StepBenchmark) -> PeakMemory:
    """Peak of the benchmark; of several calls where one was too short to be sampled."""
    if benchmark.memory.peak_bytes is not None:
        return benchmark.memory
    times = math.ceil(_SAMPLED_S / max(benchmark.median_s, 1e-6))
    return peak_memory(partial(seconds_of, call, times, synchronised_clock))


def _reason(error: RuntimeError | MemoryError) -> str | None:
    """Why a batch does not fit; `None` if *error* is about something else."""
    failure = out_of_memory(error)
    if failure is None:
        return None
    requested = failure.requested_bytes
    where = "" if failure.during == "elsewhere" else f" in {failure.during}"
    return f"out of memory{where}" + ("" if requested is None else f", {size(requested)} requested")


def _give_back() -> None:
    """Return the last point's memory: to the device, and on glibc to the system."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; musl has none
        if trim is not None:
            trim(0)


def _ascending(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """The values, each once."""
    if not values or min(values) < 1:
        raise ConfigError(f"{name}={list(values)}: needs at least one number, none below 1")
    return tuple(sorted(set(values)))
