"""Assertions of limits: a step's peak memory, and the share of the loop that waits for data."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import msgspec

from trainperf.benchmark.calls import Clock, PeakMemory, peak_memory, synchronised_clock
from trainperf.core.errors import ConfigError, SmokeFailure
from trainperf.core.formatting.units import duration, plural, share, size


Batch = TypeVar("Batch")


def assert_peak_memory_under(
    step: Callable[[Batch], object],
    batch: Batch,
    limit_bytes: int,
    *,
    warmup: int = 1,
    above_start: bool = False,
) -> PeakMemory:
    """Fail if one call of *step(batch)*, after *warmup* calls, takes *limit_bytes* or more.

    The peak is everything the process holds at that moment: on CUDA in the allocator, on a CPU in
    the resident set, with the interpreter and its libraries.  With *above_start* it is only what
    the call adds to that.  Of a CPU only Linux tells its peak; elsewhere: `ConfigError`.
    """
    __tracebackhide__ = True
    for _ in range(warmup):
        step(batch)
    memory = peak_memory(partial(step, batch))
    used_bytes = memory.above_start_bytes if above_start else memory.peak_bytes
    if used_bytes is None or memory.peak_bytes is None or memory.above_start_bytes is None:
        raise ConfigError(f"peak memory not measured: {memory.reason}")
    if used_bytes >= limit_bytes:
        what = "above what was held before" if above_start else "at the peak"
        raise SmokeFailure(
            f"the step took {size(used_bytes)} {what}, not below {size(limit_bytes)} "
            f"({memory.source}: peak {size(memory.peak_bytes)}, of which "
            f"{size(memory.above_start_bytes)} was added by the step).",
            "look for tensors that outlive the step (assert_no_graph_held), for a larger batch or "
            "sequence than meant, and at activation checkpointing or a smaller micro-batch; or "
            "raise the limit on purpose.",
        )
    return memory


class DataShare(msgspec.Struct, frozen=True, kw_only=True):
    """Time in the loader's `next` and in the step, sums over *steps* steps, device idle between.

    This is the synchronised definition: wait and stall are the same number.  In a loop that lets
    the device work on while it fetches, the wait is no larger than here.
    """

    data_s: float
    step_s: float
    steps: int

    @property
    def fraction(self) -> float:
        """Share of the loop's time spent in the loader; a quotient of sums."""
        whole = self.data_s + self.step_s
        return self.data_s / whole if whole else 0.0


def assert_data_fraction_under(
    loader: Iterable[Batch],
    step: Callable[[Batch], object],
    limit: float,
    *,
    steps: int = 30,
    warmup: int = 3,
    clock: Clock | None = None,
) -> DataShare:
    """Fail unless less than *limit* of the loop `for batch in loader: step(batch)` is waiting.

    Devices are waited for before and after each fetch.  *warmup* steps, with the start of the
    workers, are left out; a loader that ends before *steps* more gives as many as it has.
    """
    __tracebackhide__ = True
    if not 0 < limit <= 1:
        raise ConfigError(f"limit={limit}: a fraction above 0 and at most 1; try 0.2")
    measured = _measured(loader, step, (warmup, steps), clock or synchronised_clock())
    if not measured.steps:
        raise ConfigError(
            f"warmup={warmup}: the loader has no more batches than that; use a smaller warm-up"
        )
    if measured.fraction >= limit:
        raise SmokeFailure(
            f"data wait is {share(measured.fraction)} of the loop, not below {share(limit)}: "
            f"{duration(measured.data_s / measured.steps)} in the loader and "
            f"{duration(measured.step_s / measured.steps)} in the step, mean of "
            f"{plural(measured.steps, 'step')}.",
            _advice(getattr(loader, "num_workers", None), measured, limit),
        )
    return measured


def _measured(
    loader: Iterable[Batch],
    step: Callable[[Batch], object],
    warmup_and_steps: tuple[int, int],
    clock: Clock,
) -> DataShare:
    warmup, steps = warmup_and_steps
    batches, end = iter(loader), object()
    data_s: list[float] = []
    step_s: list[float] = []
    while len(step_s) < warmup + steps:
        requested_s = clock()
        batch = next(batches, end)
        if batch is end:
            break
        got_s = clock()
        step(batch)  # type: ignore[arg-type] # it is a batch, not the end
        data_s.append(got_s - requested_s)
        step_s.append(clock() - got_s)
    counted = step_s[warmup:]
    return DataShare(data_s=sum(data_s[warmup:]), step_s=sum(counted), steps=len(counted))


def _advice(workers: object, measured: DataShare, limit: float) -> str:
    """How many workers hide the loader, where that can be computed; else what to check."""
    if workers == 0 and measured.step_s > 0:
        needed = math.ceil(measured.data_s / measured.step_s)
        return (
            "num_workers=0, so batches are made between the steps: DataLoader(num_workers="
            f"{needed}, persistent_workers=True) makes them during the steps, given as many cores."
        )
    if isinstance(workers, int) and workers > 0:
        return (
            f"num_workers={workers} cannot keep up: use more if there are cores for them, make "
            "the samples cheaper (cache, decode beforehand, a lighter collate), and then look at "
            "prefetch_factor."
        )
    return (
        f"make the batches in other processes (torch.utils.data.DataLoader with num_workers), or "
        f"make them cheaper; data wait must be below {share(limit)}."
    )
