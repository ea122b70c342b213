"""What else changed over the fit?  A small picture a measurement, with the extremes of steps."""

from collections.abc import Iterator, Sequence

import msgspec

from trainperf.reports.html.drawing import Frame, Point, area, curve, keys
from trainperf.reports.html.page import Markup, paragraph, tag, text
from trainperf.reports.html.scales import Axis, Unit, short, top
from trainperf.series.chart import Chart, Line


_FEW = 2
"""A line needs so many points."""

_FAR = 2.0
"""Times the largest mean beyond which single steps are cut off, lest one flatten the rest."""

_LEVELS = frozenset({"loss"})
"""Charts of which the level counts for nothing: their axis need not begin at 0."""


def drawable(charts: Sequence[Chart]) -> Iterator[Chart]:
    """What there is something to draw of; what has an axis of its own as a chart of its own."""
    for chart in charts:
        first = [one for one in chart.lines if not one.second and _known(one) >= _FEW]
        if chart.absent is None and first:
            # What is said of the axis on the right goes with it.
            what = chart.what.split(";", maxsplit=1)[0].removesuffix(".") + "."
            yield msgspec.structs.replace(chart, lines=first, what=what)
        for one in chart.lines:
            if one.second and _known(one) >= _FEW:
                title = one.label[:1].upper() + one.label[1:]
                yield Chart(key=one.key, title=title, what=f"{title}.", unit="", lines=[one])


def absent(charts: Sequence[Chart]) -> list[tuple[str, str]]:
    """Title and reason of those that have nothing to draw."""
    return [
        (chart.title, chart.absent or "fewer than two steps have a value")
        for chart in charts
        if chart.absent is not None or all(_known(one) < _FEW for one in chart.lines)
    ]


def drawn(chart: Chart, begins: Sequence[int]) -> Markup:
    """One chart of `drawable`."""
    frame = _frame(chart, begins)
    marks = [
        mark
        for place, one in enumerate(chart.lines)
        for mark in _line(frame, one, begins, place % 8)
    ]
    named = keys((one.label, f"k{place % 8}") for place, one in enumerate(chart.lines))
    inside = [tag("h3", text(chart.title)), frame.picture(chart.what, marks)]
    if len(chart.lines) > 1:
        inside.append(named)
    return tag("div", *inside, paragraph(_said(chart), "soft small"))


def _said(chart: Chart) -> str:
    banded = any(one.high is not None for one in chart.lines)
    shade = "The shade spans single steps." if banded else ""
    return " ".join(part for part in (chart.what, shade, chart.note) if part)


def _known(line: Line) -> int:
    return sum(value is not None for value in line.values)


def _frame(chart: Chart, begins: Sequence[int]) -> Frame:
    values = [value for one in chart.lines for value in one.values if value is not None]
    single = [value for one in chart.lines for value in one.high or () if value is not None]
    high = top([max(values), min(max(single, default=0.0), _FAR * max(values))])
    low = min(0.0, *values)
    if chart.key in _LEVELS and max(values) > min(values):
        margin = 0.05 * (max(values) - min(values))
        low, high = min(values) - margin, max(values) + margin
    across = Axis(low=float(begins[0]), high=float(begins[-1]), say=short)
    if chart.unit == "s":
        return Frame(
            across=across, up=Axis(low=low, high=high, unit=Unit.of_seconds(high)), height=120
        )
    if chart.unit == "B":
        return Frame(
            across=across, up=Axis(low=low, high=high, unit=Unit.of_bytes(high)), height=120
        )
    if chart.unit == "1":
        return Frame(across=across, up=Axis(low=low, high=high, unit=Unit.of_shares()), height=120)
    return Frame(across=across, up=Axis(low=low, high=high, say=short), height=120)


def _line(frame: Frame, line: Line, begins: Sequence[int], colour: int) -> Iterator[Markup]:
    if line.low is not None and line.high is not None:
        spread = [
            (begin, low, high)
            for begin, low, high in zip(begins, line.low, line.high, strict=True)
            if low is not None and high is not None
        ]
        upper: list[Point] = [(frame.x(begin), frame.y(high)) for begin, _, high in spread]
        lower = [(frame.x(begin), frame.y(low)) for begin, low, _ in reversed(spread)]
        yield area([*upper, *lower], f"band g{colour}")
    yield curve(
        [
            (frame.x(begin), frame.y(value))
            for begin, value in zip(begins, line.values, strict=True)
            if value is not None
        ],
        f"s{colour}",
    )
