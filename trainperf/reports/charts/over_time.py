"""The step-time breakdown over the fit: phases, the slowest steps, and steps with a tag."""

from collections.abc import Iterator
from statistics import median

import numpy as np

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
)
from trainperf.core.formatting.html.markup import Markup, paragraph
from trainperf.core.formatting.units import duration, plural, words
from trainperf.core.phases import DISQUALIFYING, PHASES, TAGS, Tag
from trainperf.core.steps.block import Column
from trainperf.reports.charts.columns import Groups, Span
from trainperf.reports.layout.document import Chart


WHY = {
    "warmup": "the step time had not settled yet",
    "first_in_epoch": "first step of an epoch: the loader starts anew",
    "after_validation": "validation ran just before it",
    "after_checkpoint": "a checkpoint was written just before it",
    "profiled": "the profiler was recording, which costs time",
    "audited": "the operator audit ran in it",
    "recompiled": "torch.compile built a graph in it",
    "gc": "the garbage collector ran in it for long",
    "overflow": "the GradScaler skipped its update",
    "partial_group": "fewer micro-batches than usual were accumulated",
    "out_of_turn": "its batch was made in the other run's turn, or the other run was over",
    "turn_boundary": "the first of a turn, or the last, after which the device was waited for",
    "trial": "with a change on trial, or settling after it was switched",
}
"""What a tag says about a step, for somebody who points at it."""

_ROOM = 1.08
"""Above the slowest ordinary step."""

_FAR = 3.0
"""Times the median beyond which a slow step is marked at the edge instead of drawn to scale."""

_VISIBLE = 0.002
"""Share of the picture's height from which a phase is said when a group is pointed at."""


def over_time(groups: Groups) -> list[Chart]:
    """Phases of the step over the fit, one column a group of steps; none without any.

    The line is the slowest single step of each group; what is beyond the frame is marked at its
    upper edge.
    """
    wall = groups.span("wall")
    top_s = 0.0 if wall is None else _top_s(wall, groups.span("steady_wall"))
    if wall is None or top_s <= 0:
        return []
    first, last = int(groups.begins()[0]), int(groups.begins()[-1]) + groups.width
    frame = Frame(
        across=Axis(low=float(first), high=float(last), say=short, whole=True),
        up=Axis(low=0.0, high=top_s, unit=Unit.of_seconds(top_s)),
        height=240,
    )
    means = {
        place: np.nan_to_num(span.mean())
        for place, phase in enumerate(PHASES)
        if (span := groups.span(f"phase:{phase.label}")) is not None
    }
    marks = list(_areas(frame, groups, means))
    if groups.width > 1:
        marks.append(curve(_stairs(frame, groups, np.nan_to_num(wall.high, neginf=0.0)), "slowest"))
    marks += [*_hovers(frame, groups, wall, means), *_beyond(frame, wall, top_s)]
    named = [
        (words(PHASES[place].label), f"b{place}")
        for place, mean_s in means.items()
        if mean_s.max() > _VISIBLE * top_s
    ]
    named += [("slowest step", "kink")] if groups.width > 1 else []
    picture = Markup(
        lanes(_tagged(frame, groups))
        + frame.picture("phases of the step over the fit", marks, names=("step", ""))
        + keys(named)
        + paragraph(_caption(groups.width), "soft small")
    )
    # The tab asks for a part of the steps where somebody drags across it.
    return [Chart(Markup(f'<div data-first="{first}" data-last="{last}">{picture}</div>'))]


def _caption(width: int) -> str:
    if width == 1:
        return "Each column is one step; of several ranks their mean."
    return (
        f"Each column is the mean of {plural(width, 'step')}, the line the slowest of them; "
        "of several ranks their mean."
    )


def _top_s(wall: Span, steady: Span | None) -> float:
    """Room for all steady steps, unless a few of them are very far from the rest."""
    usual = wall if steady is None else steady
    measured = usual.count > 0
    typical_s = float(median(usual.mean()[measured].tolist()))
    return _ROOM * min(float(usual.high[measured].max()), _FAR * typical_s)


def _edges(frame: Frame, groups: Groups) -> list[Point]:
    """Left and right of each group."""
    return [(frame.x(begin), frame.x(begin + groups.width)) for begin in groups.begins().tolist()]


def _areas(frame: Frame, groups: Groups, means: dict[int, Column]) -> Iterator[Markup]:
    """Stacked, the first phase lowest."""
    foot = np.zeros(len(groups.begins()))
    for place, mean_s in means.items():
        if not mean_s.any():
            continue
        head = foot + mean_s
        outline = [*_stairs(frame, groups, head), *reversed(_stairs(frame, groups, foot))]
        yield area(outline, f"f{place}")
        foot = head


def _stairs(frame: Frame, groups: Groups, values: Column) -> list[Point]:
    return [
        (x, frame.y(value))
        for edges, value in zip(_edges(frame, groups), values.tolist(), strict=True)
        for x in edges
    ]


def _hovers(frame: Frame, groups: Groups, wall: Span, means: dict[int, Column]) -> Iterator[Markup]:
    """What is said where somebody points."""
    walls_s, begins, sizes = wall.mean(), groups.begins(), groups.steps()
    for place, (left, right) in enumerate(_edges(frame, groups)):
        if not wall.count[place]:
            continue
        label = f"step {begins[place]:,}: {duration(walls_s[place])}"
        if sizes[place] > 1:
            label = (
                f"{sizes[place]} steps from {begins[place]:,}: {duration(walls_s[place])} on "
                f"average, slowest {duration(wall.high[place])} (step {wall.high_at[place]:,})"
            )
        parts = [
            f"{words(PHASES[phase].label)} {duration(mean_s[place])}"
            for phase, mean_s in means.items()
            if mean_s[place] > _VISIBLE * walls_s[place]
        ]
        yield box((left, 0), (right - left, frame.height), "hover", "; ".join((label, *parts)))


def _beyond(frame: Frame, wall: Span, top_s: float) -> Iterator[Markup]:
    for place in np.flatnonzero(wall.high > top_s):
        at, slowest_s = int(wall.high_at[place]), float(wall.high[place])
        label = f"step {at:,}: {duration(slowest_s)}, beyond the picture"
        yield dot((frame.x(at + 0.5), 0.0), 6.0, "d0", label)


def _tagged(frame: Frame, groups: Groups) -> Iterator[Lane]:
    """A row for each tag: one mark a group, at its slowest tagged step."""
    for tag in TAGS:
        span = groups.span(f"tag:{tag.label}")
        if span is not None:
            yield _lane(frame, groups, tag, span)


def _lane(frame: Frame, groups: Groups, tag: Tag, span: Span) -> Lane:
    wide = groups.width / (frame.across.high - frame.across.low) * WIDE
    left = ", excluded from the steady steps" if tag & DISQUALIFYING else ""
    marks = []
    for place in np.flatnonzero(span.count):
        group, at = int(groups.begins()[place]), int(span.high_at[place])
        number = plural(int(span.count[place]), "such step")
        label = f"step {at:,}: {words(tag.label)}, {duration(float(span.high[place]))}; {number}"
        marks.append((frame.x(group), wide, f"{label} here{left}: {WHY[tag.label]}"))
    return Lane(name=words(tag.label), marks=tuple(marks))
