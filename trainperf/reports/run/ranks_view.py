"""Words of a run's ranks: rows of a heat map, and who was late how often."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from trainperf.analysis.summary.ranks import RankColumn, RankMap, notably_late, rank_map
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.table import UNKNOWN, Table
from trainperf.core.formatting.units import Scale, duration, plural, share, words
from trainperf.core.loop_kind import meeting_place
from trainperf.core.readings import STEP_MEAN_S


HOTTEST = 0.25
"""Share of the step by which a cell is in full colour."""

_FAINTEST = 0.04
"""Less of a colour cannot be seen."""

_SHADES = " ░▒▓█"

_NAMED = 0.005
"""Share of the step from which being late is worth a number."""

MOST_LATE = 2
"""Ranks that are named so in the short report."""


class HeatCell(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a rank, and how far it is from the typical rank's."""

    value: str
    heat: float
    """0 to 1: beyond the typical rank by so much of a quarter of the step."""
    waits: bool
    """Whether it is a wait: then much of it means that others are late."""


class HeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rank."""

    label: str
    stands_out: bool
    cells: list[HeatCell]


class RanksView(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of several ranks."""

    columns: list[str]
    typical: list[str]
    """The median of each column."""
    ranks: list[HeatRow]
    """Each of a few; of many those that matter."""
    notes: list[str]


def ranks_view(summary: Summary) -> RanksView | None:
    """Put the ranks into words; `None` for a single rank."""
    of = rank_map(summary)
    if of is None:
        return None
    scales = [Scale.of(max(1e-9, float(np.nanmax(column.values_s)))) for column in of.columns]
    return RanksView(
        columns=[_head(column) for column in of.columns],
        typical=[
            UNKNOWN if column.kind == "late" else scale.say(column.typical_s)
            for column, scale in zip(of.columns, scales, strict=True)
        ],
        ranks=[_row(place, of, scales, summary) for place in of.shown],
        notes=_notes(summary, of),
    )


def of_ranks(summary: Summary) -> list[Table]:
    """The map of the ranks as a table; empty for a single rank."""
    view = ranks_view(summary)
    if view is None:
        return []
    shades = f"{_SHADES[1:]} beyond the typical rank by up to {share(HOTTEST)} of the step"
    ranks = Table(
        title="Ranks",
        head=("rank", *view.columns),
        rows=(
            ("typical", *view.typical),
            *((row.label, *map(_shaded, row.cells)) for row in view.ranks),
        ),
        notes=(*view.notes, shades),
    )
    return [ranks]


def late_lines(summary: Summary) -> list[str]:
    """Ranks that are notably often late where none is always, for a short report."""
    lines = [
        f"rank {rank:,} late at {meeting_place(point.point, summary.run.config)} in "
        f"{share(fraction)} of {plural(point.n, 'step')}"
        for point in summary.synchronisation
        if not point.late
        for rank, fraction in notably_late(point).items()
    ]
    return lines[:MOST_LATE]


def _head(column: RankColumn) -> str:
    name = words(column.name)
    return {"phase": name, "wait": f"wait at {name}", "late": f"late at {name}"}[column.kind]


def _row(place: int, of: RankMap, scales: Sequence[Scale], summary: Summary) -> HeatRow:
    cells = []
    for column, scale in zip(of.columns, scales, strict=True):
        excess = float(column.excess[place])
        cells.append(
            HeatCell(
                value=_value(float(column.values_s[place]), column.kind, excess, scale),
                heat=_heat(excess),
                waits=column.kind == "wait",
            )
        )
    return HeatRow(
        label=f"{summary.run.ranks[place]:,}", stands_out=place in of.differing, cells=cells
    )


def _value(seconds: float, kind: str, excess: float, scale: Scale) -> str:
    if math.isnan(seconds) or (kind == "late" and excess < _NAMED):
        return UNKNOWN
    return scale.say(seconds)


def _heat(excess: float) -> float:
    heat = min(1.0, excess / HOTTEST)
    return 0.0 if heat < _FAINTEST else round(heat, 2)


def _notes(summary: Summary, of: RankMap) -> list[str]:
    step = duration(summary.value(STEP_MEAN_S) or 0.0)
    notes = [
        f"means of a steady step, {step}; typical is the median rank, and late is after it",
        "backward is without the wait in it",
    ]
    if any(point.point == "other" for point in summary.synchronisation):
        notes.append(f"at other: at {meeting_place('other', summary.run.config)}")
    if len(of.shown) < len(summary.run.ranks):
        number = plural(len(summary.run.ranks), "rank")
        which = f"the {len(of.shown)} that differ most" if of.shown else "none differs notably"
        notes.insert(0, f"of {number} {which}")
    return notes


def _shaded(cell: HeatCell) -> str:
    shade = _SHADES[math.ceil(cell.heat * (len(_SHADES) - 1) - 0.5)]
    return cell.value if shade == " " else f"{shade} {cell.value}"
