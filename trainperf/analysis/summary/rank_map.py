"""Map of a run's ranks: phases and waits of each, against the typical rank.

Of many ranks there are rows for those that matter and for groups of neighbours, so that what is
shown of a job does not grow with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from trainperf.analysis.summary.schema import Summary, SyncPoint
from trainperf.core.phases import PHASES, Phase
from trainperf.core.readings import STEP_MEAN_S, phase_reading


FEW_RANKS = 16
"""Up to so many, each rank has a row."""

MOST_MATTERING = 12
"""Rows of single ranks among many."""

MOST_GROUPS = 32

NOTABLE = 0.05
"""Share of the step from which a rank stands out; likewise of the steps in which it is late."""

_VISIBLE = 0.001
"""Share of the step below which all ranks spend nothing in a phase."""

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankColumn:
    """One figure of all ranks."""

    kind: Literal["phase", "wait", "late"]
    """Time in a phase without what it waits there for others; the wait at a point; by how much it
    comes there after the typical rank."""
    name: str
    """Of the phase or point."""
    values_s: Numbers
    """By place of the rank; NaN where not measured."""
    typical_s: float
    """Their median."""

    def excess_s(self) -> Numbers:
        """What each rank has beyond the typical one, or waits beyond the transfer; else 0."""
        base_s = np.nanmin(self.values_s) if self.kind == "wait" else self.typical_s
        return np.nan_to_num(self.values_s - base_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank; or several neighbours, and of them in each column the one that has most."""

    first: int
    last: int
    stands_out: bool
    """Whether it is late, or spends notably more than the typical rank in a phase."""
    most: tuple[int, ...]
    """Whose figure it is, by column."""
    values_s: tuple[float | None, ...]
    excess: tuple[float, ...]
    """Beyond the typical rank, of a wait beyond the transfer, as shares of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMap:
    """Columns, and rows that were chosen of the ranks."""

    columns: tuple[RankColumn, ...]
    ranks: tuple[RankRow, ...]
    """All of a few; of many those that matter, the one that matters most first."""
    groups: tuple[RankRow, ...]
    """All of many, by neighbours; empty for a few."""


def rank_map(summary: Summary) -> RankMap | None:
    """The map of a run; `None` for a single rank, or without a step."""
    ranks, step_s = summary.run.ranks, summary.value(STEP_MEAN_S)
    if len(ranks) < 2 or not step_s:
        return None
    columns = _columns(summary, step_s)
    if not columns:
        return None
    values = np.stack([column.values_s for column in columns], axis=1)
    # More of a wait is no fault of the rank that waits.
    guilty = np.array([column.kind != "wait" for column in columns])
    excess = np.stack([column.excess_s() for column in columns], axis=1) / step_s
    worst = np.where(guilty, excess, 0.0).max(axis=1)
    order = _order(summary, worst)

    def row(places: range, *, stands_out: bool) -> RankRow:
        most = places.start + excess[places].argmax(axis=0)
        figures = values[most, np.arange(len(columns))]
        return RankRow(
            first=ranks[places.start],
            last=ranks[places.stop - 1],
            stands_out=stands_out,
            most=tuple(ranks[place] for place in most.tolist()),
            values_s=tuple(None if math.isnan(value) else value for value in figures.tolist()),
            excess=tuple(excess[places].max(axis=0).tolist()),
        )

    def single(place: int, *, stands_out: bool) -> RankRow:
        return row(range(place, place + 1), stands_out=stands_out)

    if len(ranks) <= FEW_RANKS:
        rows = [single(place, stands_out=place in order) for place in range(len(ranks))]
        return RankMap(columns=columns, ranks=tuple(rows), groups=())
    size, every = _group_size(summary), range(len(ranks))
    parts = [every[begin : begin + size] for begin in range(0, len(ranks), size)]
    return RankMap(
        columns=columns,
        ranks=tuple(single(place, stands_out=True) for place in order[:MOST_MATTERING]),
        groups=tuple(row(part, stands_out=False) for part in parts),
    )


def _columns(summary: Summary, step_s: float) -> tuple[RankColumn, ...]:
    points = {point.point: point for point in summary.synchronisation}
    columns = []
    for phase in PHASES:
        point = points.get(phase.label)
        if phase is Phase.LOOP and point is not None:
            continue  # the wait itself
        values = _numbers(summary.readings[phase_reading(phase.label)].per_rank, summary)
        if phase is Phase.BACKWARD and point is not None and summary.run.device == "cpu":
            values = values - np.array(point.wait_s)
        if not np.isnan(values).all() and np.nanmax(values) >= _VISIBLE * step_s:
            columns.append(_column("phase", phase.label, values))
    for point in points.values():
        columns += _of_point(point)
    return tuple(columns)


def _of_point(point: SyncPoint) -> list[RankColumn]:
    waits = np.array(point.wait_s)
    return [
        _column("wait", point.point, waits),
        _column("late", point.point, np.median(waits) - waits),
    ]


def _column(kind: Literal["phase", "wait", "late"], name: str, values: Numbers) -> RankColumn:
    return RankColumn(kind=kind, name=name, values_s=values, typical_s=float(np.nanmedian(values)))


def _numbers(per_rank: Sequence[float | None], summary: Summary) -> Numbers:
    values = [np.nan if value is None else value for value in per_rank]
    return np.array(values or [np.nan] * len(summary.run.ranks), dtype=np.float64)


def _order(summary: Summary, worst: Numbers) -> list[int]:
    """Places of the ranks that matter: the named, the often late, those that differ."""
    places = {rank: place for place, rank in enumerate(summary.run.ranks)}
    points = summary.synchronisation
    chosen = [point.straggler for point in points if point.straggler is not None]
    for point in points:
        late = [
            sum(window.of_ranks[n] for window in point.windows)
            for n in range(len(point.often_late))
        ]
        chosen += [
            rank
            for rank, steps in zip(point.often_late, late, strict=True)
            if steps >= NOTABLE * point.n
        ]
    differing = np.flatnonzero(worst >= NOTABLE)
    far = sorted(differing.tolist(), key=lambda place: (-worst[place], place))
    return list(dict.fromkeys([*(places[rank] for rank in chosen), *far]))


def _group_size(summary: Summary) -> int:
    """Ranks of a group: whole hosts, where the ranks of one are known."""
    here = summary.run.hardware.get("local_world_size")
    unit = here if isinstance(here, int) and here > 0 else 1
    least = -(-len(summary.run.ranks) // MOST_GROUPS)
    return -(-least // unit) * unit
