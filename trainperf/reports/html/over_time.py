"""Charts over the steps of a fit: its phases, and a small one per measurement."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from trainperf.core.formatting.html.figures import (
    WIDE,
    Axis,
    Frame,
    Lane,
    Point,
    Unit,
    area,
    box,
    curve,
    dot,
    keys,
    lanes,
    short,
    top,
)
from trainperf.core.formatting.html.markup import Markup, paragraph, tag, text
from trainperf.core.formatting.html.palette import COLOURS
from trainperf.core.formatting.units import count, duration, plural, share, size
from trainperf.core.phases import PHASES
from trainperf.reports.series.charts import Chart, Line
from trainperf.reports.series.steps import Steps, TagMarks


PHASE_COLOURS = {phase.label: place for place, phase in enumerate(PHASES)}
"""Of the style, by the phase's label."""

_VISIBLE = 0.002
"""Share of the picture's height from which a phase is said when a group is pointed at."""


def over_time(steps: Steps) -> Markup:
    """Phases of the step over the fit, one column a group of steps; empty without any.

    The line is the slowest single step of each group; what is beyond the frame is marked at its
    upper edge.
    """
    top_s = steps.frame_s or max(filter(None, steps.wall_s), default=0.0)
    if not steps.begins or top_s <= 0:
        return Markup("")
    end = steps.begins[-1] + steps.width
    frame = Frame(
        across=Axis(low=float(steps.begins[0]), high=float(end), say=short, whole=True),
        up=Axis(low=0.0, high=top_s, unit=Unit.of_seconds(top_s)),
        height=240,
    )
    marks = [*_areas(frame, steps), _slowest(frame, steps), *_hovers(frame, steps)]
    marks += _beyond(frame, steps, top_s)
    least_s = _VISIBLE * top_s
    shown = [
        phase for phase in steps.phases if any((spent or 0.0) > least_s for spent in phase.mean_s)
    ]
    named = [(phase.label, f"b{PHASE_COLOURS[phase.key]}") for phase in shown]
    if steps.width > 1:
        named.append(("slowest step", "kink"))
    return Markup(
        lanes(_lane(frame, steps, phase) for phase in steps.tags)
        + frame.picture("phases of the step over the fit", marks, names=("step", ""))
        + keys(named)
        + paragraph(_steps_caption(steps), "soft small")
    )


def _steps_caption(steps: Steps) -> str:
    if steps.width == 1:
        return "Each column is one step; of several ranks their mean."
    return (
        f"Each column is the mean of {plural(steps.width, 'step')}, the line the slowest of them; "
        "of several ranks their mean."
    )


def _edges(frame: Frame, steps: Steps) -> list[Point]:
    """Left and right of each group."""
    return [(frame.x(begin), frame.x(begin + steps.width)) for begin in steps.begins]


def _areas(frame: Frame, steps: Steps) -> Iterator[Markup]:
    """Stacked, the first phase lowest."""
    edges = _edges(frame, steps)
    foot = [0.0] * len(edges)
    for phase in steps.phases:
        if not any(phase.mean_s):
            continue
        head = [low + (spent or 0.0) for low, spent in zip(foot, phase.mean_s, strict=True)]
        outline = [*_stairs(frame, edges, head), *reversed(_stairs(frame, edges, foot))]
        yield area(outline, f"f{PHASE_COLOURS[phase.key]}")
        foot = head


def _stairs(frame: Frame, edges: list[Point], values: list[float]) -> list[Point]:
    return [
        (x, frame.y(value))
        for (left, right), value in zip(edges, values, strict=True)
        for x in (left, right)
    ]


def _slowest(frame: Frame, steps: Steps) -> Markup:
    if steps.width == 1:
        return Markup("")
    values = [value or 0.0 for value in steps.slowest_s]
    return curve(_stairs(frame, _edges(frame, steps), values), "slowest")


def _hovers(frame: Frame, steps: Steps) -> Iterator[Markup]:
    """What is said where somebody points."""
    for place, (left, right) in enumerate(_edges(frame, steps)):
        wall_s, slowest_s = steps.wall_s[place], steps.slowest_s[place]
        if wall_s is None or slowest_s is None:
            continue
        parts = [
            f"{phase.label} {duration(spent)}"
            for phase in steps.phases
            if (spent := phase.mean_s[place] or 0.0) > _VISIBLE * wall_s
        ]
        begin, number = steps.begins[place], steps.steps[place]
        label = f"step {begin:,}: {duration(wall_s)}"
        if number > 1:
            label = (
                f"{number} steps from {begin:,}: {duration(wall_s)} on average, slowest "
                f"{duration(slowest_s)} (step {steps.slowest_at[place]:,})"
            )
        yield box((left, 0), (right - left, frame.height), "hover", "; ".join((label, *parts)))


def _beyond(frame: Frame, steps: Steps, top_s: float) -> Iterator[Markup]:
    for at, slowest_s in zip(steps.slowest_at, steps.slowest_s, strict=True):
        if slowest_s is not None and slowest_s > top_s:
            label = f"step {at:,}: {duration(slowest_s)}, beyond the picture"
            yield dot((frame.x(at + 0.5), 0.0), 6.0, "d0", label)


def _lane(frame: Frame, steps: Steps, marked: TagMarks) -> Lane:
    wide = steps.width / (frame.across.high - frame.across.low) * WIDE
    left = ", excluded from the steady steps" if marked.left_out else ""
    marks = []
    for at, wall_s, number in zip(marked.at, marked.wall_s, marked.steps, strict=True):
        group = at - (at - steps.begins[0]) % steps.width
        took = "" if wall_s is None else f", {duration(wall_s)}"
        label = f"step {at:,}: {marked.label}{took}; {plural(number, 'such step')} here{left}: "
        marks.append((frame.x(group), wide, f"{label}{marked.why}"))
    return Lane(name=marked.label, marks=tuple(marks))


_FEW = 2
"""A line needs so many points."""

_FAR = 2.0
"""Times the usual value beyond which single steps are cut off, and said."""

_USUAL = 0.95
"""Quantile of the groups that is usual."""

_MASKED = "tokens"
_SAY: dict[str, Callable[[float], str]] = {"s": duration, "B": size, "1": share}

_LEVELS = frozenset({"loss", "machine_clock", "machine_heat"})
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
