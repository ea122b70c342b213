"""What batch size should I take?  The same step over batch sizes and sequence lengths.

Each point is a `benchmark_step` of its own, the smallest batch first.  A batch that does not fit
ends its length, and the largest that does is then looked for between it and the last that did.
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
from trainperf.benchmark.memory import peak_memory
from trainperf.benchmark.results import PeakMemory, StepBenchmark
from trainperf.benchmark.steps import benchmark_step
from trainperf.benchmark.sweeps.batch_points import SweepPoint
from trainperf.benchmark.sweeps.batch_results import Sweep
from trainperf.benchmark.sweeps.graphs import graphs_built
from trainperf.benchmark.timing import seconds_of, synchronised_clock
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.units import size


Batch = TypeVar("Batch")

_WARMUP = 3
_LOOKED_AT_S = 0.03
"""A call shorter than this is repeated while its memory is looked at: one is over too soon."""
_NEAR = 8
"""The search for the largest that fits ends within an eighth of it."""


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

    The step trains on, from one point to the next.  A batch does not fit where memory runs out or
    where a later call's peak is above *limit_bytes*; what it took is given back and the sweep goes
    on.  A step that ends so may leave half of its gradients: let it begin with `zero_grad`.

    Args:
        step: Takes a batch; the same function for all.
        make_batch: Makes one of a batch size and a length, full of text: padding counts as text.
        batch_sizes: To try, in any order.
        lengths: Of sequences; without them the unit is samples, and *make_batch* is given 1.
        repeat: Timed calls at each point, after three that are not.
        limit_bytes: The most that may be used: CUDA's allocator, or on a CPU the resident set of
            this process, which may go beyond it once per length while that is found out.

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
    """What is tried at every point."""

    step: Callable[[Batch], object]
    make_batch: Callable[[int, int], Batch]
    repeat: int
    limit_bytes: int | None

    def point(self, batch_size: int, length: int) -> SweepPoint:
        """Measure one point; afterwards its memory is given back."""
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
        found = benchmark_step(self.step, batch, _WARMUP, self.repeat)
        memory = _memory(partial(self.step, batch), found)
        peak, limit = memory.peak_bytes, self.limit_bytes
        over = ""
        if peak is not None and limit is not None and peak > limit:
            over = f"peak {size(peak)}, limit {size(limit)}"
        return msgspec.structs.replace(
            point,
            refused=over,
            cold_s=found.cold_s,
            median_s=None if over else found.median_s,
            iqr_s=None if over else found.iqr_s,
            memory=memory,
            noisy=any(warning.startswith("noisy") for warning in found.warnings),
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


def _memory(call: Callable[[], object], found: StepBenchmark) -> PeakMemory:
    """That of the benchmark; of several calls where one was too short to be looked at."""
    if found.memory.peak_bytes is not None:
        return found.memory
    times = math.ceil(_LOOKED_AT_S / max(found.median_s, 1e-6))
    return peak_memory(partial(seconds_of, call, times, synchronised_clock))


def _reason(error: RuntimeError | MemoryError) -> str | None:
    """Why a batch does not fit; `None` if *error* is about something else."""
    said = out_of_memory(error)
    if said is None:
        return None
    asked = said.requested_bytes
    where = "" if said.during == "elsewhere" else f" in {said.during}"
    return f"out of memory{where}" + ("" if asked is None else f", {size(asked)} asked for")


def _give_back() -> None:
    """Return what the last point took: to the device, and on glibc to the system."""
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
