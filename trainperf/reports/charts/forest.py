"""Forest plot: ratios with their intervals in the cells of a table, on one logarithmic axis."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainperf.core.formatting.html.figures import Axis
from trainperf.core.formatting.html.markup import Markup, paragraph
from trainperf.core.formatting.table import Table
from trainperf.reports.layout.document import Chart, Pictured


CAPTION = Chart(
    paragraph(
        "Bar: 95 % CI, on a logarithmic axis; dashed line: as before. Green is faster, red slower, "
        "grey equal, undecided or neither. A ring has no interval.",
        "soft small",
    )
)

FARTHEST = 10.0
"""Ratios beyond this, or its inverse, are drawn at the edge."""

_NEAREST = 1.1
"""The axis reaches at least so far, so that noise does not look like a gulf."""

_TICKS = (0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0)
_COARSE = (0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
"""Those for which a narrow page has room."""

_APART = 0.08
"""Share of the axis between two ticks that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioMark:
    """A ratio, its 95 % interval, and a class of the style for its verdict."""

    value: float | None
    low: float | None
    high: float | None
    kind: str


def forest(table: Table, marks: Sequence[RatioMark], place: int) -> Pictured:
    """A table with its ratios as bars over their intervals, in the column at *place*."""
    axis = ratio_axis(marks)
    cells = tuple(_drawn_on(axis, mark) for mark in marks)
    return Pictured(table=table, place=place, head=_ticks(axis), cells=cells)


def ratio_axis(estimates: Sequence[RatioMark]) -> Axis:
    """The axis on which all of them are drawn, those beyond `FARTHEST` at its edge."""
    ends = [
        end for each in estimates for end in (each.low, each.high, each.value) if end is not None
    ]
    low = min([1 / _NEAREST, *ends])
    high = max([_NEAREST, *ends])
    return Axis(
        low=max(low, 1 / FARTHEST) / 1.03, high=min(high, FARTHEST) * 1.03, logarithmic=True
    )


def _ticks(axis: Axis) -> Markup:
    """Its ticks, those nearest to no change first where there is no room for all."""
    taken: list[float] = []
    spans = []
    for tick in sorted(_TICKS, key=lambda tick: abs(math.log(tick))):
        at = axis.at(tick)
        inside = axis.low <= tick <= axis.high
        if inside and all(abs(at - other) >= _APART for other in taken):
            taken.append(at)
            kind = "tick" if tick in _COARSE else "tick fine"
            spans.append(f'<span class="{kind}" style="left:{at * 100:.1f}%">{tick:g}</span>')
    return Markup(f'<div class="forest">{"".join(spans)}</div>')


def _drawn_on(axis: Axis, estimate: RatioMark) -> Markup:
    """A bar over the interval, and a spot; a ring where it has no interval."""
    marks = []
    if estimate.low is not None and estimate.high is not None:
        marks.append(reach(axis.at(estimate.low), axis.at(estimate.high), estimate.kind))
    if estimate.value:
        kind = estimate.kind if estimate.low is not None else f"{estimate.kind} ring"
        at = axis.at(estimate.value) * 100
        marks.append(Markup(f'<span class="spot {kind}" style="left:{at:.1f}%"></span>'))
    return track(marks, axis.at(1.0))


def track(marks: Iterable[Markup], unity: float) -> Markup:
    """A cell's line of marks, with no change at *unity*, a share of its width."""
    middle = f'<span class="unity" style="left:{unity * 100:.1f}%"></span>'
    return Markup(f'<div class="forest">{middle}{"".join(marks)}</div>')


def reach(low: float, high: float, kind: str) -> Markup:
    """A bar on it from one share of its width to another; *kind* is its class of the style."""
    left, wide = low * 100, (high - low) * 100
    return Markup(f'<span class="reach {kind}" style="left:{left:.1f}%;width:{wide:.1f}%"></span>')
