"""Interval algebra on columns: unions, gaps, overlaps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainperf.traces.event_table import Column


_NO_TIMES: Column = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Disjoint intervals in order, each from `start` up to but without `end`, in nanoseconds."""

    start: Column
    end: Column

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> int:
        """Time that is covered."""
        return int((self.end - self.start).sum())

    @property
    def bounds(self) -> tuple[int, int] | None:
        """From the first start to the last end; `None` without intervals."""
        return (int(self.start[0]), int(self.end[-1])) if len(self) else None

    def until(self, times: Column) -> Column:
        """Covered time before each of *times*, which may be in any order."""
        lengths = np.concatenate(([0], np.cumsum(self.end - self.start)))
        place = np.searchsorted(self.start, times, side="right")
        inside = np.zeros_like(times)
        after = place > 0
        last = place[after] - 1
        inside[after] = np.minimum(times[after] - self.end[last], 0)
        return np.asarray(lengths[place] + inside, np.int64)

    def within(self, start: Column, end: Column) -> Column:
        """Covered time inside each of some windows; windows may overlap."""
        return self.until(end) - self.until(start)

    def holds(self, times: Column) -> "np.typing.NDArray[np.bool_]":
        """Whether each of *times* is covered."""
        place = np.searchsorted(self.start, times, side="right") - 1
        inside = place >= 0
        inside[inside] = times[inside] < self.end[place[inside]]
        return inside


def union(start: Column, end: Column) -> Spans:
    """What any of some intervals covers; they may come in any order and overlap."""
    keep = end > start
    start, end = start[keep], end[keep]
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.ones(len(start), bool)
    opens[1:] = start[1:] > reach[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(start)) - 1
    return Spans(start=start[first], end=reach[last[: len(first)]])


def either(first: Spans, other: Spans) -> Spans:
    """What one of two covers."""
    return union(np.concatenate((first.start, other.start)), np.concatenate((first.end, other.end)))


def both(first: Spans, other: Spans) -> Spans:
    """What both of two cover."""
    begin, end = _pieces(first, other)
    kept = first.holds(begin) & other.holds(begin)
    return union(begin[kept], end[kept])


def without(first: Spans, other: Spans) -> Spans:
    """What *one* covers and *other* does not."""
    begin, end = _pieces(first, other)
    kept = first.holds(begin) & ~other.holds(begin)
    return union(begin[kept], end[kept])


def overlaps(several: Sequence[Spans], other: Spans) -> list[int]:
    """How much of each of *several* another covers, in one pass over them all."""
    start = np.concatenate([spans.start for spans in several] or [_NO_TIMES])
    end = np.concatenate([spans.end for spans in several] or [_NO_TIMES])
    sums = np.concatenate(([0], np.cumsum(other.within(start, end))))
    bounds = np.cumsum([0, *map(len, several)])
    return [int(part) for part in np.diff(sums[bounds])]


def clipped(spans: Spans, start: int, end: int) -> Spans:
    """What is left inside one window."""
    return union(np.maximum(spans.start, start), np.minimum(spans.end, end))


def _pieces(first: Spans, other: Spans) -> tuple[Column, Column]:
    """Time cut at every edge of two: each piece is wholly inside or outside of either."""
    edges = np.sort(np.concatenate((first.start, first.end, other.start, other.end)))
    begin, end = edges[:-1], edges[1:]
    real = end > begin
    return begin[real], end[real]
