"""The step-time breakdown over the fit: phases, the slowest steps, and steps with a tag."""

from collections.abc import Iterator, Mapping
from statistics import median

import numpy as np

from trainperf.core.arrays import Column
from trainperf.core.formatting.html.figures import (
    WIDE,
    Axis,
    Frame,
    Mark,
    box,
    keys,
    lanes,
    line,
)
from trainperf.core.formatting.html.markup import Markup, paragraph
from trainperf.core.formatting.units import Scale, duration, plural, words
from trainperf.core.phases import DISQUALIFYING, PHASES, TAGS
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
    "out_of_turn": "the other run was over",
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
    if wall is None:
        return []
    usual = groups.span("steady_wall") or wall
    measured = usual.weight > 0
    typical_s = float(median(usual.mean()[measured].tolist()))
    # Room for all steady steps, unless a few of them are very far from the rest.
    top_s = _ROOM * min(float(usual.high[measured].max()), _FAR * typical_s)
    if top_s <= 0:
        return []
    first, last = int(groups.begins()[0]), int(groups.begins()[-1]) + groups.width
    frame = Frame(
        across=Axis(low=float(first), high=float(last), unit=Scale.of(last, ""), whole=True),
        up=Axis(low=0.0, high=top_s, unit=Scale.of(top_s)),
        height=240,
    )
    spans = {place: groups.span(f"phase:{phase.label}") for place, phase in enumerate(PHASES)}
    means = {place: np.nan_to_num(span.mean()) for place, span in spans.items() if span}
    marks = list(_areas(frame, groups, means))
    named = {
        words(PHASES[place].label): f"b{place}"
        for place, mean_s in means.items()
        if mean_s.max() > _VISIBLE * top_s
    }
    caption = "Each column is one step; of several ranks their mean."
    if groups.width > 1:
        caption = (
            f"Each column is the mean of {plural(groups.width, 'step')}, the line the slowest of "
            "them; of several ranks their mean."
        )
        slowest = np.nan_to_num(wall.high, neginf=0.0)
        marks.append(line(_stairs(frame, groups, slowest), "slowest"))
        named["slowest step"] = "kink"
    marks += _hovers(frame, groups, wall, means)
    picture = Markup(
        lanes(_tagged(frame, groups))
        + frame.picture("phases of the step over the fit", marks, across="step")
        + keys(named.items())
        + paragraph(caption, "soft small")
    )
    # The tab asks for a part of the steps where somebody drags across it.
    return [Chart(Markup(f'<div data-first="{first}" data-last="{last}">{picture}</div>'))]


def _stairs(frame: Frame, groups: Groups, values: Column) -> list[tuple[float, float]]:
    """An outline that keeps its height from the left of each group to its right."""
    return [
        (frame.x(x), frame.y(value))
        for begin, value in zip(groups.begins().tolist(), values.tolist(), strict=True)
        for x in (begin, begin + groups.width)
    ]


def _areas(frame: Frame, groups: Groups, means: Mapping[int, Column]) -> Iterator[Markup]:
    """Stacked, the first phase lowest."""
    foot = np.zeros(len(groups.begins()))
    for place, mean_s in means.items():
        head = foot + mean_s
        outline = [*_stairs(frame, groups, head), *reversed(_stairs(frame, groups, foot))]
        yield line(outline if mean_s.any() else [], f"f{place}", closed=True)
        foot = head


def _hovers(
    frame: Frame, groups: Groups, wall: Span, means: Mapping[int, Column]
) -> Iterator[Markup]:
    """What is said where somebody points, and a mark for what is beyond the picture."""
    walls_s, begins, sizes = wall.mean(), groups.begins(), groups.steps()
    for place in np.flatnonzero(wall.weight):
        left, right = frame.x(begins[place]), frame.x(begins[place] + groups.width)
        label = f"step {begins[place]:,}: {duration(walls_s[place])}"
        slowest = f"step {int(wall.high_at[place]):,}"
        if sizes[place] > 1:
            label = (
                f"{sizes[place]} steps from {begins[place]:,}: {duration(walls_s[place])} on "
                f"average, slowest {duration(wall.high[place])} ({slowest})"
            )
        parts = [
            f"{words(PHASES[phase].label)} {duration(mean_s[place])}"
            for phase, mean_s in means.items()
            if mean_s[place] > _VISIBLE * walls_s[place]
        ]
        yield box((left, 0), (right - left, frame.height), "hover", "; ".join((label, *parts)))
        if wall.high[place] > frame.up.high:
            label = f"{slowest}: {duration(wall.high[place])}, beyond the picture"
            yield box((left, 0), (max(right - left, 3.0), 5), "f0", label)


def _tagged(frame: Frame, groups: Groups) -> Iterator[tuple[str, list[Mark]]]:
    """A row for each tag: one mark a group, at its slowest tagged step."""
    wide = groups.width / (frame.across.high - frame.across.low) * WIDE
    for tag in TAGS:
        span = groups.span(f"tag:{tag.label}")
        if span is None:
            continue
        left = ", excluded from the steady steps" if tag & DISQUALIFYING else ""
        marks = []
        for place in np.flatnonzero(span.weight):
            number = plural(int(span.weight[place]), "such step")
            label = (
                f"step {int(span.high_at[place]):,}: {words(tag.label)}, "
                f"{duration(span.high[place])}; {number} here{left}: {WHY[tag.label]}"
            )
            marks.append((frame.x(groups.begins()[place]), wide, "event", label))
        yield words(tag.label), marks
