"""Batch-size sweep: the same step over batch sizes and sequence lengths, and the knee of the curve.

Each point is a `benchmark_step` of its own, the smallest batch first.  The first batch that does
not fit ends its length; the largest that fits is then searched for below it.

SI units; `None` means *not measured*.
"""

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec

from trainperf.accelerators import default_accelerator
from trainperf.audit.out_of_memory import out_of_memory
from trainperf.benchmark.shown import Shown
from trainperf.benchmark.steps import Batch, StepBenchmark, benchmark_step
from trainperf.core.choice import first_that_holds
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.table import UNKNOWN, Table, or_unknown
from trainperf.core.formatting.units import count, duration, size


KNEE_WITHIN = 0.05
"""A batch this close to the best throughput of its length is as good, and takes less memory."""
_NEAR = 8
"""The search for the largest batch that fits ends within an eighth of it."""


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One batch size at one length: measured, or why not."""

    batch_size: int
    length: int
    """Of the sequences; 1 in a sweep without lengths."""
    refused: str = ""
    """Why it does not fit; empty if it fits."""
    step: StepBenchmark | None = None
    """What was measured, also of a batch that is above the limit."""

    @property
    def median_s(self) -> float | None:
        """Of the timed calls of a batch that fits."""
        return None if self.step is None or self.refused else self.step.median_s

    @property
    def per_s(self) -> float | None:
        """Throughput: batch size × length / median.  Padding in the batch counts like text."""
        return None if self.median_s is None else self.batch_size * self.length / self.median_s


class Sweep(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """A finished sweep, its points by length and then by batch size, with its report."""

    unit: Literal["tokens", "samples"]
    points: tuple[SweepPoint, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that were tried, ascending."""
        return tuple(sorted({point.length for point in self.points}))

    def fitting(self, length: int | None = None) -> list[SweepPoint]:
        """The points that fit at *length*, by default the longest; the largest is the last."""
        at = max(self.lengths) if length is None else length
        return [point for point in self.points if point.length == at and not point.refused]

    def knee(self, length: int | None = None) -> SweepPoint | None:
        """The smallest batch within `KNEE_WITHIN` of the best throughput; `None` if none fits."""
        points = self.fitting(length)
        enough = (1 - KNEE_WITHIN) * max((point.per_s or 0.0 for point in points), default=0.0)
        return next((point for point in points if (point.per_s or 0.0) >= enough), None)

    def report(self) -> tuple[Sequence[str], Table, Sequence[str]]:
        """As `Shown` has it."""
        answer = [self._answer(length) for length in self.lengths]
        first = 1 if self.unit == "samples" else 0
        rows = tuple(self._row(point)[first:] for point in self.points)
        head = ("length", "batch", "median", "IQR", "cold", f"{self.unit}/s", "peak memory", "")
        notes = {f"Peak memory: {p.step.memory.source}." for p in self.points if p.step is not None}
        return answer, Table(head=head[first:], rows=rows, words=0, end_words=1), sorted(notes)

    def _answer(self, length: int) -> str:
        knee, fitting = self.knee(length), self.fitting(length)
        where = f"Length {length:,}: batch" if length > 1 else "Batch"
        if knee is None:
            return f"{where} sizes that were tried do not fit."
        why = first_that_holds(
            ("throughput still rising: try larger batches", knee is fitting[-1]),
            ("the smallest within 5 % of the best throughput", True),
        )
        refused = [p.batch_size for p in self.points if p.refused and p.length == length]
        fits = f"; {fitting[-1].batch_size:,} fits, {min(refused):,} does not" if refused else ""
        doubt = " (noisy: measure again)" if knee.step is not None and knee.step.noisy else ""
        rate = f"{count(round(knee.per_s or 0.0))} {self.unit}/s"
        return f"{where} {knee.batch_size:,}, {rate}, {why}{fits}{doubt}."

    def _row(self, point: SweepPoint) -> tuple[str, ...]:
        mark = "← knee" if point is self.knee(point.length) else ""
        sizes = (f"{point.length:,}", f"{point.batch_size:,}")
        if point.step is None:
            return (*sizes, *[UNKNOWN] * 5, f"does not fit: {point.refused}")
        return (
            *sizes,
            duration(point.step.median_s),
            duration(point.step.iqr_s),
            duration(point.step.warmup_s[0]),
            or_unknown(point.per_s, lambda per_s: count(round(per_s))),
            or_unknown(point.step.memory.peak_bytes, size),
            f"does not fit: {point.refused}" if point.refused else mark,
        )


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
    for name, values in {"batch_sizes": batch_sizes, "lengths": lengths}.items():
        if not values or min(values) < 1:
            raise ConfigError(f"{name}={list(values)}: needs at least one number, none below 1")
    points: list[SweepPoint] = []
    for length in sorted(set(lengths)):
        of_length = _of_length(
            partial(_point, step, make_batch, repeat, limit_bytes, length),
            sorted(set(batch_sizes)),
        )
        points += sorted(of_length, key=lambda point: point.batch_size)
    return Sweep(unit="samples" if set(lengths) == {1} else "tokens", points=tuple(points))


def _of_length(measure: Callable[[int], SweepPoint], sizes: Sequence[int]) -> list[SweepPoint]:
    """Points in ascending order up to the first that does not fit, then the search before it."""
    points: list[SweepPoint] = []
    fits, refused, waiting = 0, 0, [*sizes]
    while waiting:
        points.append(measure(waiting.pop(0)))
        if points[-1].refused:
            refused, waiting = points[-1].batch_size, []
        else:
            fits = points[-1].batch_size
        if fits and not waiting and refused - fits > max(1, fits // _NEAR):
            waiting = [(fits + refused) // 2]
    return points


def _point(
    step: Callable[[Batch], object],
    make_batch: Callable[[int, int], Batch],
    repeat: int,
    limit_bytes: int | None,
    length: int,
    batch_size: int,
) -> SweepPoint:
    """Measure one point, then return its memory: to the device, and what garbage holds."""
    timed, refused = None, ""
    try:
        timed = benchmark_step(step, make_batch(batch_size, length), 3, repeat)
    except (RuntimeError, MemoryError) as error:
        failure = out_of_memory(error)
        if failure is None:
            raise
        refused = f"out of memory, {or_unknown(failure.requested_bytes, size)} requested"
    gc.collect()
    default_accelerator().empty_cache()
    peak = 0 if timed is None else timed.memory.peak_bytes or 0
    if limit_bytes is not None and peak > limit_bytes:
        refused = f"peak {size(peak)}, limit {size(limit_bytes)}"
    return SweepPoint(batch_size=batch_size, length=length, refused=refused, step=timed)
