"""The step-time breakdown over a run, and all its charts: groups of steps as lines.

Everything is SI; a missing value is `null`.  A line's values are means of its group (of quotients:
quotients of sums), `low` and `high` are those of single steps.
"""

from collections.abc import Sequence
from statistics import median

import msgspec
import numpy as np

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.units import words
from trainperf.core.phases import DISQUALIFYING, PHASES, TAGS
from trainperf.core.steps.block import Column
from trainperf.reports.series.charts import Chart, charts, listed
from trainperf.reports.series.columns import Groups, Span
from trainperf.reports.series.machine import machine_charts


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


class TagMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Where steps with one tag are: one mark a group, at its slowest tagged step."""

    key: str
    label: str
    why: str
    left_out: bool
    """Whether such steps are left out of the steady statistics."""
    at: list[int]
    """Number of the step that is marked."""
    wall_s: list[float | None]
    """Its time on the slowest rank."""
    steps: list[int]
    """Steps with the tag in the group."""


class PhaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """Mean host time of one phase in each group."""

    key: str
    label: str
    mean_s: list[float | None]


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The step-time breakdown over steps; all lists but those of tags have one length."""

    rank: int | None
    """Whose phases; `None` for the mean over ranks."""
    width: int
    """Steps in a full group."""
    begins: list[int]
    """First step of each group."""
    steps: list[int]
    """Steps in each group."""
    phases: list[PhaseLine]
    wall_s: list[float | None]
    """Mean of the group: the sum of its phases."""
    fastest_s: list[float | None]
    slowest_s: list[float | None]
    slowest_at: list[int]
    frame_s: float | None
    """Upper end of the axis: slower steps are marked at it, lest one long step hide the rest."""
    tags: list[TagMarks]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """All charts of a run over one range of steps."""

    steps: Steps | None
    """`None` when there is no step in the range."""
    charts: list[Chart]


def series(groups: Groups, summary: Summary, rank: int | None) -> Series:
    """What the charts show of the steps in *groups*."""
    drawn = [*charts(groups, summary), *machine_charts(groups, summary)]
    return Series(steps=_steps(groups, rank), charts=drawn)


def _steps(groups: Groups, rank: int | None) -> Steps | None:
    wall = groups.span("wall")
    if wall is None:
        return None
    spans = {phase: groups.span(f"phase:{phase.label}") or Span() for phase in PHASES}
    return Steps(
        rank=rank,
        width=groups.width,
        begins=groups.begins().tolist(),
        steps=groups.steps().tolist(),
        phases=[
            PhaseLine(key=phase.label, label=words(phase.label), mean_s=listed(span.mean()))
            for phase, span in spans.items()
        ],
        wall_s=listed(wall.mean()),
        fastest_s=listed(wall.low),
        slowest_s=listed(wall.high),
        slowest_at=wall.high_at.tolist(),
        frame_s=_frame_s(wall, groups.span("steady_wall")),
        tags=list(_tags(groups)),
    )


def _frame_s(wall: Span, steady: Span | None) -> float | None:
    """Room for all steady steps, unless a few of them are very far from the rest."""
    usual = wall if steady is None else steady
    measured = usual.count > 0
    typical_s = median(usual.mean()[measured].tolist())
    frame_s = _ROOM * min(float(usual.high[measured].max()), _FAR * typical_s)
    return frame_s or None


def _tags(groups: Groups) -> Sequence[TagMarks]:
    marks = []
    for tag in TAGS:
        span = groups.span(f"tag:{tag.label}")
        if span is None:
            continue
        there = np.flatnonzero(span.count)
        slowest: Column = span.high[there]
        marks.append(
            TagMarks(
                key=tag.label,
                label=words(tag.label),
                why=WHY[tag.label],
                left_out=bool(tag & DISQUALIFYING),
                at=span.high_at[there].tolist(),
                wall_s=listed(slowest),
                steps=span.count[there].tolist(),
            )
        )
    return marks
