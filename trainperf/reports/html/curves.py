"""The small charts of a page: one per measurement, with the extremes of single steps."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from trainperf.core.formatting.html.markup import Markup, paragraph, tag, text
from trainperf.core.formatting.html.palette import COLOURS
from trainperf.core.formatting.html.scales import Axis, Unit, short, top
from trainperf.core.formatting.html.svg import Frame, Point, area, curve, keys
from trainperf.core.formatting.units import count, duration, share, size
from trainperf.reports.series.charts import Chart, Line


_FEW = 2
"""A line needs so many points."""

_FAR = 2.0
"""Times the usual value beyond which single steps are cut off, and said."""

_USUAL = 0.95
"""Quantile of the groups that is usual."""

_MASKED = "tokens"
_SAY: dict[str, Callable[[float], str]] = {"s": duration, "B": size, "1": share}

_LEVELS = frozenset({"loss"})
"""Charts of which the level counts for nothing: their axis need not begin at 0."""


def drawable(charts: Sequence[Chart]) -> Iterator[Chart]:
    """What there is something to draw of; what has an axis of its own as a chart of its own."""
    for chart in charts:
        first = [line for line in chart.lines if not line.second and _measured(line) >= _FEW]
        if chart.absent is None and first:
            # What is said of the axis on the right goes with it.
            what = chart.what.split(";", maxsplit=1)[0].removesuffix(".") + "."
            yield msgspec.structs.replace(chart, lines=first, what=what)
        for line in chart.lines:
            if line.second and _measured(line) >= _FEW:
                title = line.label[:1].upper() + line.label[1:]
                yield Chart(key=line.key, title=title, what=f"{title}.", unit="", lines=[line])


def absent(charts: Sequence[Chart]) -> list[tuple[str, str]]:
    """Title and reason of those that have nothing to draw."""
    return [
        (chart.title, chart.absent or "fewer than two steps have a value")
        for chart in charts
        if chart.absent is not None or all(_measured(line) < _FEW for line in chart.lines)
    ]


def drawn(chart: Chart, begins: Sequence[int]) -> Markup:
    """One chart of `drawable`."""
    frame = _frame(chart, begins)
    marks = [
        mark
        for place, line in enumerate(chart.lines)
        for mark in _line(frame, line, begins, place % COLOURS)
    ]
    named = keys((line.label, f"k{place % COLOURS}") for place, line in enumerate(chart.lines))
    inside = [tag("h3", text(chart.title)), frame.picture(chart.what, marks), named]
    return tag("div", *inside, paragraph(_caption(chart, frame), "soft small"))


def _caption(chart: Chart, frame: Frame) -> str:
    banded = any(line.high is not None for line in chart.lines)
    shade = "The shade spans single steps." if banded else ""
    # The tokens' note is the name of what told padding from tokens.
    note = f"Mask: {chart.note}." if chart.note and chart.key == _MASKED else chart.note
    most = max([*_values(chart), *_singles(chart)])
    beyond = f"Beyond the picture: up to {_SAY.get(chart.unit, count)(most)}."
    cut = beyond if most > frame.up.high else ""
    return " ".join(part for part in (chart.what, shade, cut, note) if part)


def _values(chart: Chart) -> list[float]:
    return [value for line in chart.lines for value in line.values if value is not None]


def _singles(chart: Chart) -> list[float]:
    """The largest single steps of the groups."""
    return [value for line in chart.lines for value in line.high or () if value is not None]


def _measured(line: Line) -> int:
    return sum(value is not None for value in line.values)


def _frame(chart: Chart, begins: Sequence[int]) -> Frame:
    values = _values(chart)
    usual = sorted(values)[int(_USUAL * (len(values) - 1))]
    # Where nearly all is small, it is that which is to be seen.
    largest = _FAR * usual if max(values) > _FAR**2 * usual > 0 else max(values)
    single = max(_singles(chart), default=0.0)
    high = top([largest, min(single, _FAR * usual)])
    low = min(0.0, *values)
    if chart.key in _LEVELS and max(values) > min(values):
        margin = 0.05 * (max(values) - min(values))
        low, high = min(values) - margin, max(values) + margin
    return Frame(
        across=Axis(low=float(begins[0]), high=float(begins[-1]), say=short, whole=True),
        up=_up(chart, low, high),
        height=120,
    )


def _up(chart: Chart, low: float, high: float) -> Axis:
    if chart.unit == "s":
        return Axis(low=low, high=high, unit=Unit.of_seconds(high))
    if chart.unit == "B":
        return Axis(low=low, high=high, unit=Unit.of_bytes(high))
    if chart.unit == "1":
        return Axis(low=low, high=high, unit=Unit.of_shares())
    return Axis(low=low, high=high, say=short)


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
