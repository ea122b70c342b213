"""Ranks of a run against each other: what a step would save without late ones, and a map.

A step of several ranks lasts until the last of them has arrived at each synchronisation point.  Had
it arrived with the typical other rank, the step would have been shorter by what it came after that
one.  Delays at several points add up where host and device work in step; on an asynchronous device
they are the same delay seen twice, and the larger one counts.

Worked example: a step of 60 ms in which rank 3 arrives 9 ms after the others, and the first of
those it held up waits 8 ms longer than it does.  As fast as the typical rank it would save 8 ms: 52
ms.  Over 64 devices and an hour of such steps, 8.5 device-hours are lost to it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainperf.analysis.run.job_block import FEW_RANKS
from trainperf.analysis.summary.schema import MOST_RANKS, Summary, SyncPoint
from trainperf.core.arrays import Column
from trainperf.core.findings import LIMITS
from trainperf.core.phases import PHASES, Phase
from trainperf.core.readings import STEP_MEAN_S, phase_reading


ColumnKind = Literal["phase", "wait", "late"]


def saved_s(summary: Summary, if_fast: Literal["named_s", "even_s"]) -> float:
    """What a mean steady step would save at all its points together, at best.

    Args:
        summary: Of the run; without ranks that wait for each other nothing is saved.
        if_fast: Whether those that are named as late were as fast as the others, or every rank.
    """
    saved = [float(getattr(point, if_fast)) for point in summary.synchronisation]
    return sum(saved) if summary.run.device == "cpu" else max(saved, default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankColumn:
    """One figure of all ranks, by place of the rank."""

    kind: ColumnKind
    """Time in a phase without what it waits there for others; the wait at a point; by how much it
    comes there after the typical rank."""
    name: str
    """Of the phase or point."""
    values_s: Column
    """NaN where not measured."""
    typical_s: float
    """Their median."""
    excess: Column
    """Beyond the typical rank, of a wait beyond the transfer, as shares of the step; 0 where not
    measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMap:
    """Columns, and ranks that were chosen: what is shown does not grow with a job."""

    columns: tuple[RankColumn, ...]
    shown: Sequence[int]
    """Places of the ranks to show: all of a few; of many those that matter, most first."""


def rank_map(summary: Summary) -> RankMap | None:
    """Phases and waits of each rank against the typical one; `None` for one, or without a step."""
    number, step_s = len(summary.run.ranks), summary.value(STEP_MEAN_S)
    columns = tuple(_columns(summary, step_s)) if step_s and number > 1 else ()
    if not columns:
        return None
    # More of a wait is no fault of the rank that waits.
    guilty = [column.excess for column in columns if column.kind != "wait"]
    differing = _differing(summary, np.max(guilty, axis=0))
    shown = range(number) if number <= FEW_RANKS else differing[:MOST_RANKS]
    return RankMap(columns=columns, shown=shown)


def _columns(summary: Summary, step_s: float) -> Iterable[RankColumn]:
    def column(kind: ColumnKind, name: str, values_s: Column) -> RankColumn:
        typical_s = float(np.nanmedian(values_s))
        base_s = float(np.nanmin(values_s)) if kind == "wait" else typical_s
        excess = np.nan_to_num(values_s - base_s) / step_s
        return RankColumn(
            kind=kind, name=name, values_s=values_s, typical_s=typical_s, excess=excess
        )

    points = {point.point: point for point in summary.synchronisation}
    for phase in PHASES:
        point = points.get(phase.label)
        values = np.array(summary.readings[phase_reading(phase.label)].per_rank, np.float64)
        if not len(values) or (phase is Phase.LOOP and point is not None):
            continue  # not measured, or the wait itself
        if phase is Phase.BACKWARD and point is not None and summary.run.device == "cpu":
            values = values - np.array(point.wait_s)
        if not np.isnan(values).all() and np.nanmax(values) >= LIMITS.trifle * step_s:
            yield column("phase", phase.label, values)
    for name, point in points.items():
        waits = np.array(point.wait_s)
        yield column("wait", name, waits)
        yield column("late", name, np.median(waits) - waits)


def _differing(summary: Summary, worst: Column) -> list[int]:
    """Places of the ranks that matter: the named, the often late, those that differ."""
    points = summary.synchronisation
    chosen = [
        *(late.rank for point in points for late in point.late),
        *(rank for point in points for rank in notably_late(point)),
    ]
    far = [place for place in np.argsort(-worst, kind="stable") if worst[place] >= LIMITS.worth]
    return list(dict.fromkeys(map(int, [*map(summary.run.ranks.index, chosen), *far])))


def notably_late(point: SyncPoint) -> dict[int, float]:
    """Ranks that are late at a point in a notable share of the steps, and that share."""
    return {rank: share for rank, share in point.often_late.items() if share >= LIMITS.worth}
