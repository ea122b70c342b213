"""Measured points of a batch-size sweep, and the knee of the curve.

SI units; `None` means *not measured*.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from trainperf.benchmark.results import PeakMemory


KNEE_WITHIN = 0.05
"""A batch this close to the best throughput of its length is as good, and takes less memory."""


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One batch size at one length: measured, or why not."""

    batch_size: int
    length: int
    """Of the sequences; 1 in a sweep without lengths."""
    refused: str = ""
    """Why it does not fit; empty if it fits."""
    cold_s: float | None = None
    """The first call with this shape: compilation, autotuning, allocation."""
    median_s: float | None = None
    """Of the timed calls: host clock, device idle at both ends of each."""
    iqr_s: float | None = None
    memory: PeakMemory | None = None
    """Peak of later calls with this shape: on CUDA of the allocator, on a CPU of the process."""
    recompiles: int | None = None
    """Graphs that torch.compile built for this shape, at the first point the first ones; `None`
    where torch does not count them."""
    noisy: bool = False
    """IQR above 10 % of the median."""

    @property
    def per_s(self) -> float | None:
        """Throughput: batch size × length / median.  Padding in the batch counts like text."""
        return None if self.median_s is None else self.batch_size * self.length / self.median_s

    @property
    def peak_bytes(self) -> int | None:
        """Peak memory, if it was measured."""
        return None if self.memory is None else self.memory.peak_bytes


class Knee(msgspec.Struct, frozen=True, kw_only=True):
    """Which batch sizes matter at one length."""

    length: int
    batch_size: int
    """The smallest whose throughput is within `KNEE_WITHIN` of the best one measured."""
    per_s: float
    best: int
    """The batch size of the highest throughput."""
    best_per_s: float
    largest: int
    """The largest size tried that fits."""
    refused: int | None
    """The smallest size tried that does not fit; `None` if all fit."""
    noisy: bool
    """Whether its time or that of the best is noisy: another sweep may differ."""

    @property
    def rising(self) -> bool:
        """Whether no smaller batch comes near the largest: the knee is there or beyond."""
        return self.batch_size == self.largest


class SweepPoints(msgspec.Struct, frozen=True, kw_only=True):
    """The points of a sweep, by length and then by batch size."""

    unit: Literal["tokens", "samples"]
    limit_bytes: int | None
    points: tuple[SweepPoint, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that were tried, ascending."""
        return tuple(sorted({point.length for point in self.points}))

    def knee(self, length: int | None = None) -> Knee | None:
        """The batch sizes that matter at *length*, by default the longest; `None` if none fits."""
        at = max(self.lengths) if length is None else length
        return knee_of([point for point in self.points if point.length == at])


def knee_of(points: Sequence[SweepPoint]) -> Knee | None:
    """The batch sizes that matter among points of one length; `None` if none was measured."""
    measured = {point.batch_size: point.per_s for point in points if point.per_s is not None}
    noisy = {point.batch_size for point in points if point.noisy}
    if not measured:
        return None
    best = max(measured, key=lambda size: measured[size])
    enough = (1 - KNEE_WITHIN) * measured[best]
    size = min(size for size, per_s in measured.items() if per_s >= enough)
    return Knee(
        length=points[0].length,
        batch_size=size,
        per_s=measured[size],
        best=best,
        best_per_s=measured[best],
        largest=max(measured),
        refused=min((point.batch_size for point in points if point.refused), default=None),
        noisy=not noisy.isdisjoint({size, best}),
    )
