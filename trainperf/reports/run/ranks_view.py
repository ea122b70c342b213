"""Words of a run's ranks: rows of a heat map, and a timeline of who was late."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from trainperf.analysis.summary.rank_map import NOTABLE, RankColumn, RankMap, RankRow, rank_map
from trainperf.analysis.summary.schema import Summary, SyncPoint
from trainperf.core.formatting.table import UNKNOWN, Table
from trainperf.core.formatting.units import Scale, duration, plural, share, step_range, words
from trainperf.core.loop_kind import meeting_place
from trainperf.core.readings import STEP_MEAN_S


HOTTEST = 0.25
"""Share of the step by which a cell is in full colour."""

_FAINTEST = 0.04
"""Less of a colour cannot be seen."""

_SHADES = " ░▒▓█"
_EIGHTHS = "▁▂▃▄▅▆▇█"

_NAMED = 0.005
"""Share of the step from which being late is worth a number."""

MOST_LATE = 2
"""Ranks whose timeline is in the short report."""

_LEAST_WINDOWS = 16


class HeatCell(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a rank, and how far it is from the typical rank's."""

    value: str
    heat: float
    """0 to 1: beyond the typical rank by so much of a quarter of the step."""
    waits: bool
    """Whether it is a wait: then much of it means that others are late."""
    rank: int
    """Whose it is."""


class HeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rank; or neighbours, with the largest figure among them."""

    label: str
    stands_out: bool
    cells: list[HeatCell]


class LateTimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """In which share of each window's steps a rank was late."""

    label: str
    total: str
    """Of all steps."""
    shares: list[float]


class LateTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """Who was late at a point, over the steady steps of the run."""

    title: str
    steps: list[str]
    """Range of each window, e.g. `steps 40–59`."""
    rows: list[LateTimelineRow]
    """Any rank first."""
    span: str
    """Steps of all windows."""


class RanksView(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of several ranks."""

    columns: list[str]
    typical: list[str]
    """The median of each column."""
    ranks: list[HeatRow]
    """Each of a few; of many those that matter."""
    groups: list[HeatRow]
    """Of many, all by neighbours."""
    timelines: list[LateTimeline]
    notes: list[str]


def ranks_view(summary: Summary) -> RanksView | None:
    """Put the ranks into words; `None` for a single rank."""
    of = rank_map(summary)
    if of is None:
        return None
    scales = [Scale.of(max(1e-9, float(np.nanmax(column.values_s)))) for column in of.columns]
    timelines = [_timeline(point, summary) for point in _eventful(summary)]
    return RanksView(
        columns=[_head(column) for column in of.columns],
        typical=[
            UNKNOWN if column.kind == "late" else scale.say(column.typical_s)
            for column, scale in zip(of.columns, scales, strict=True)
        ],
        ranks=[_row(row, of, scales) for row in of.ranks],
        groups=[_row(row, of, scales) for row in of.groups],
        timelines=timelines,
        notes=_notes(summary, of),
    )


def of_ranks(summary: Summary) -> list[Table]:
    """The map of the ranks and the timelines as tables; empty for a single rank."""
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
    return [ranks, *map(_drawn, view.timelines)]


def late_lines(summary: Summary, width: int) -> list[str]:
    """The timelines of the ranks that were late notably often, for a short report."""
    out = []
    for point in _eventful(summary):
        timeline = _timeline(point, summary)
        place = meeting_place(point.point, summary.run.config)
        for row in timeline.rows[1:]:
            about = f"{row.label} late at {place} in {row.total} of {timeline.span}"
            room = max(_LEAST_WINDOWS, width - len(about) - 2)
            out.append(f"{_spark(_coarse(row.shares, room))}  {about}")
    return out[:MOST_LATE]


def _eventful(summary: Summary) -> list[SyncPoint]:
    """Points at which some rank was late often enough to draw it."""
    return [
        point
        for point in summary.synchronisation
        if sum(window.late_steps for window in point.windows) >= NOTABLE * point.n
    ]


def _drawn(timeline: LateTimeline) -> Table:
    return Table(
        title=timeline.title,
        head=("", timeline.span, "of the steps"),
        rows=tuple((row.label, _spark(row.shares), row.total) for row in timeline.rows),
        words=2,
    )


def _head(column: RankColumn) -> str:
    name = words(column.name)
    return {"phase": name, "wait": f"wait at {name}", "late": f"late at {name}"}[column.kind]


def _row(row: RankRow, of: RankMap, scales: Sequence[Scale]) -> HeatRow:
    several = row.last > row.first
    return HeatRow(
        label=f"{row.first:,}–{row.last:,}" if several else f"{row.first:,}",
        stands_out=row.stands_out,
        cells=[
            HeatCell(
                value=_value(value, column.kind, excess, scale),
                heat=_heat(excess),
                waits=column.kind == "wait",
                rank=rank,
            )
            for value, excess, rank, column, scale in zip(
                row.values_s, row.excess, row.most, of.columns, scales, strict=True
            )
        ],
    )


def _value(seconds: float | None, kind: str, excess: float, scale: Scale) -> str:
    if seconds is None or (kind == "late" and excess < _NAMED):
        return UNKNOWN
    return scale.say(seconds)


def _heat(excess: float) -> float:
    heat = min(1.0, excess / HOTTEST)
    return 0.0 if heat < _FAINTEST else round(heat, 2)


def _timeline(point: SyncPoint, summary: Summary) -> LateTimeline:
    windows = point.windows
    late = [
        (sum(window.of_ranks[place] for window in windows), place, rank)
        for place, rank in enumerate(point.often_late)
    ]
    return LateTimeline(
        title=f"Who was late at {meeting_place(point.point, summary.run.config)}",
        steps=[step_range(window.first_step, window.last_step) for window in windows],
        rows=[
            _timed("any rank", point, [window.late_steps for window in windows]),
            *(
                _timed(f"rank {rank:,}", point, [window.of_ranks[place] for window in windows])
                for steps, place, rank in late
                if steps >= NOTABLE * point.n
            ),
        ],
        span=step_range(windows[0].first_step, windows[-1].last_step),
    )


def _timed(label: str, point: SyncPoint, late_steps: Sequence[int]) -> LateTimelineRow:
    steps = [window.steps for window in point.windows]
    return LateTimelineRow(
        label=label,
        total=share(sum(late_steps) / max(1, sum(steps))),
        shares=[round(late / max(1, of), 3) for late, of in zip(late_steps, steps, strict=True)],
    )


def _notes(summary: Summary, of: RankMap) -> list[str]:
    step = duration(summary.value(STEP_MEAN_S) or 0.0)
    notes = [
        f"means of a steady step, {step}; typical is the median rank, and late is after it",
        "backward is without the wait in it",
    ]
    if any(point.point == "other" for point in summary.synchronisation):
        notes.append(f"at other: at {meeting_place('other', summary.run.config)}")
    if of.groups:
        number = plural(len(summary.run.ranks), "rank")
        which = f"the {len(of.ranks)} that differ most" if of.ranks else "none differs notably"
        notes.insert(0, f"of {number} {which}")
    return notes


def _shaded(cell: HeatCell) -> str:
    shade = _SHADES[math.ceil(cell.heat * (len(_SHADES) - 1) - 0.5)]
    return cell.value if shade == " " else f"{shade} {cell.value}"


def _spark(shares: Sequence[float]) -> str:
    return "".join("·" if not each else _EIGHTHS[min(7, int(each * 8))] for each in shares)


def _coarse(shares: Sequence[float], most: int) -> list[float]:
    """The same in no more places."""
    joined = -(-len(shares) // most)
    parts = [shares[begin : begin + joined] for begin in range(0, len(shares), joined)]
    return [sum(part) / len(part) for part in parts]
