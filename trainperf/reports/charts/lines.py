"""Lines over steps or over work: each with the extremes of single steps as its shade."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainperf.core.arrays import Column
from trainperf.core.choice import texts_of
from trainperf.core.formatting.html.figures import (
    Axis,
    Frame,
    box,
    keys,
    line,
)
from trainperf.core.formatting.html.markup import Markup, paragraph, tag, text
from trainperf.core.formatting.html.palette import COLOURS
from trainperf.core.formatting.units import Scale, count, duration, share, size
from trainperf.reports.layout.document import Chart


_FAR = 2.0
"""Times the usual value beyond which single steps are cut off, and said."""

_USUAL = 0.95
"""Quantile of the values that is usual."""

_SAY = {"s": duration, "B": size, "1": share}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart; NaN is a missing value."""

    label: str
    """Lines of one label have one colour."""
    x: Column
    y: Column
    shade: tuple[Column, Column] | None = None
    """The least and the most of single steps; `None` where only the value counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """What a chart of lines shows, in SI units."""

    title: str
    what: str
    """In one sentence."""
    unit: str = ""
    """`s`, `B`, `1` (a share of one), or anything else for a plain number."""
    lines: Sequence[Line] = ()
    across: str = ""
    """Name of the horizontal axis, where it is not that of the steps."""
    level: bool = False
    """Whether the level counts for nothing: the axis need not begin at 0."""
    shaded: tuple[float, float] | None = None
    """A range of the horizontal axis."""
    peaks: bool = False
    """Whether the highest values are what is to be seen: none is cut off."""


def line_chart(chart: LineChart, *, height: int = 120) -> Chart:
    """The picture, what its colours are, and a caption; small ones stand in a grid."""
    labels = dict.fromkeys(line.label for line in chart.lines)
    colours = {label: place % COLOURS for place, label in enumerate(labels)}
    frame = _frame(chart, height)
    marks = [mark for line in chart.lines for mark in _drawn(frame, line, colours[line.label])]
    if chart.shaded is not None:
        left, right = map(frame.x, chart.shaded)
        marks.insert(0, box((left, 0.0), (right - left, height), "range"))
    most = _most(chart)
    caption = texts_of(
        chart.what,
        any(line.shade for line in chart.lines) and "The shade spans single steps.",
        most > frame.up.high and f"Beyond the picture: up to {_SAY.get(chart.unit, count)(most)}.",
    )
    picture = Markup(
        (tag("h3", text(chart.title)) if chart.title else "")
        + frame.picture(chart.title or chart.what, marks, across=chart.across)
        + keys((label, f"k{colour}") for label, colour in colours.items())
        + paragraph(" ".join(caption), "soft small")
    )
    return Chart(tag("div", picture), small=not chart.across)


def _most(chart: LineChart) -> float:
    values = [line.shade[1] if line.shade else line.y for line in chart.lines]
    return max(float(each[np.isfinite(each)].max()) for each in values)


def _frame(chart: LineChart, height: int) -> Frame:
    values = np.concatenate([line.y[np.isfinite(line.y)] for line in chart.lines])
    works = np.concatenate([line.x for line in chart.lines])
    low, high = min(0.0, float(values.min())), float(values.max())
    if chart.level:
        margin = 0.05 * (high - float(values.min())) or 0.5
        low, high = float(values.min()) - margin, high + margin
    else:
        usual = _FAR * float(np.quantile(values, _USUAL, method="lower"))
        # Where nearly all is small, it is that which is to be seen.
        high = usual if high > _FAR * usual > 0 and not chart.peaks else high
        high = 1.04 * max(high, min(_most(chart), usual)) or 1.0
    first, last = float(works.min()), float(works.max())
    whole = not chart.across
    return Frame(
        across=Axis(low=first, high=last, unit=Scale.of(last, ""), whole=whole),
        up=Axis(low=low, high=high, unit=Scale.of(high, chart.unit)),
        height=height,
    )


def _drawn(frame: Frame, drawn: Line, colour: int) -> Iterator[Markup]:
    there = np.flatnonzero(np.isfinite(drawn.y))
    across = [frame.x(x) for x in drawn.x[there].tolist()]
    if drawn.shade is not None:
        low, high = ([frame.y(y) for y in side[there].tolist()] for side in drawn.shade)
        outline = [*zip(across, high, strict=True), *reversed(list(zip(across, low, strict=True)))]
        yield line(outline, f"band g{colour}", closed=True)
    points = zip(across, map(frame.y, drawn.y[there].tolist()), strict=True)
    yield line(list(points), f"s{colour}")
