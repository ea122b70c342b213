"""The phases of the step over the fit, with the slowest and the tagged steps."""

from collections.abc import Iterator

from trainperf.core.formatting.html.markup import Markup, paragraph
from trainperf.core.formatting.html.scales import Axis, Unit, short
from trainperf.core.formatting.html.svg import (
    WIDE,
    Frame,
    Lane,
    Point,
    area,
    box,
    curve,
    dot,
    keys,
    lanes,
)
from trainperf.core.formatting.units import duration, plural
from trainperf.core.phases import PHASES
from trainperf.reports.series.steps import Steps, TagMarks


COLOURS = {phase.label: place for place, phase in enumerate(PHASES)}
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
    named = [(phase.label, f"b{COLOURS[phase.key]}") for phase in shown]
    if steps.width > 1:
        named.append(("slowest step", "kink"))
    return Markup(
        lanes(_lane(frame, steps, phase) for phase in steps.tags)
        + frame.picture("phases of the step over the fit", marks, names=("step", ""))
        + keys(named)
        + paragraph(_caption(steps), "soft small")
    )


def _caption(steps: Steps) -> str:
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
        yield area(outline, f"f{COLOURS[phase.key]}")
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
