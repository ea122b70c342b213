"""Columns of `TraceStep`: nanoseconds of many steps put into its fields."""

from collections.abc import Mapping, Sequence

import numpy as np

from trainperf.traces.event_table import NONE, Codes, Column
from trainperf.traces.metrics.device import DeviceWork
from trainperf.traces.metrics.spans import Mask, Rows, Spans, union


Value = float | int | None
StepColumns = Mapping[str, Sequence[Value]]
"""Fields of `TraceStep`, each with a value for every step."""


def seconds(nanoseconds: Column | Sequence[int]) -> list[float]:
    """Whole nanoseconds as seconds."""
    return [int(value) / 1_000_000_000 for value in nanoseconds]


def maybe_seconds(nanoseconds: Sequence[int | None]) -> list[float | None]:
    """The same where some are not measured."""
    return [None if value is None else value / 1_000_000_000 for value in nanoseconds]


def not_measured(names: Sequence[str], count: int) -> StepColumns:
    """Columns of `None`."""
    return {name: [None] * count for name in names}


def share(part: Sequence[int], whole: Sequence[int]) -> list[float | None]:
    """Quotients; `None` where there is nothing to have a share in."""
    return [part_ / whole_ if whole_ else None for part_, whole_ in zip(part, whole, strict=True)]


def median(values: Column | Sequence[float]) -> float:
    """The median of one value or more, without the 15 ms in which `np.median` loads `numpy.ma`."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    return float(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def by_step(device: DeviceWork, wanted: Mask, count: int) -> list[Spans]:
    """When any of the wanted that each step launched ran."""
    rows = np.flatnonzero(wanted & device.in_steps)
    rows = rows[np.argsort(device.step[rows], kind="stable")]
    bounds = np.searchsorted(device.step[rows], np.arange(count + 1))
    groups = np.split(rows, bounds[1:-1])
    return [union(device.start[mine], device.end[mine]) for mine in groups]


def sums(group: Codes | Rows, values: Column | int, count: int) -> Column:
    """The sum of *values* in each of *count* groups; *group* has the number of each one's."""
    out = np.zeros(count, np.int64)
    np.add.at(out, group, values)
    return out


def per_step(step: Codes | Column, count: int, weights: Column | None = None) -> list[int]:
    """How many rows, or the sum of whole *weights*, each step has; rows outside are left out."""
    inside = step != NONE
    counts = sums(step[inside], 1 if weights is None else weights[inside], count)
    return [int(value) for value in counts]
