"""Forest plot: ratios with their intervals in the cells of a table, on one logarithmic axis."""

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioMark:
    """A ratio, its 95 % interval, and a class of the style for its verdict."""

    value: float | None
    low: float | None
    high: float | None
    kind: str


def forest(table: Table, marks: Sequence[RatioMark], place: int) -> Pictured:
    """A table with its ratios as bars over their intervals, in the column at *place*."""
    ends = [end for mark in marks for end in (mark.low, mark.high, mark.value) if end is not None]
    low, high = min([1 / _NEAREST, *ends]), max([_NEAREST, *ends])
    axis = Axis(
        low=max(low, 1 / FARTHEST) / 1.03, high=min(high, FARTHEST) * 1.03, logarithmic=True
    )
    # A narrow page has room for the tick of no change alone.
    ticks = (
        f'<span class="{"tick" if tick == 1 else "tick fine"}" '
        f'style="left:{axis.at(tick) * 100:.1f}%">{tick:g}</span>'
        for tick in axis.ticks()
    )
    head = Markup(f'<div class="forest">{"".join(ticks)}</div>')
    cells = tuple(_cell(axis, mark) for mark in marks)
    return Pictured(table=table, place=place, head=head, cells=cells)


def _cell(axis: Axis, mark: RatioMark) -> Markup:
    """A bar over the interval, and a spot; a ring where it has no interval."""
    unity = f'<span class="unity" style="left:{axis.at(1.0) * 100:.1f}%"></span>'
    reach = spot = ""
    if mark.low is not None and mark.high is not None:
        left, right = axis.at(mark.low) * 100, axis.at(mark.high) * 100
        place = f"left:{left:.1f}%;width:{right - left:.1f}%"
        reach = f'<span class="reach {mark.kind}" style="{place}"></span>'
    if mark.value:
        kind = mark.kind if reach else f"{mark.kind} ring"
        spot = f'<span class="spot {kind}" style="left:{axis.at(mark.value) * 100:.1f}%"></span>'
    return Markup(f'<div class="forest">{unity}{reach}{spot}</div>')
