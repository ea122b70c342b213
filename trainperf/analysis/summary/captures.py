"""Captures of a run: whether traces agree with the records, and whether steps after stay slower."""

from collections.abc import Iterator, Sequence

import numpy as np

from trainperf.analysis.summary.lead_steps import (
    HOST,
    INDEX,
    NEIGHBOURS,
    SLOWEST,
    TAIL,
    LeadSteps,
    tagged,
)
from trainperf.analysis.summary.schema import CaptureAftermath, TracedDuration, TracedSteps
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, step_range
from trainperf.core.phases import DISQUALIFYING, Phase, Tag
from trainperf.core.steps.block import Column
from trainperf.traces.capture_files import CaptureReport, rank_of
from trainperf.traces.results import RankTrace


FEWEST = 5
"""Fewest steps on a side that have quartiles."""

_WORDS = {
    "step": "step time is",
    "data_wait": "data wait is",
    "allreduce_tail": "all-reduce tail is",
}
"""What is compared between a trace and the records."""


def captures(steps: LeadSteps) -> tuple[CaptureAftermath, ...]:
    """Each stretch of profiled steps, and whether the steps after it are as fast as before."""
    rows = steps.rows()
    rows = rows[tagged(rows, Tag.PROFILED) | ~tagged(rows, DISQUALIFYING)]
    profiled = tagged(rows, Tag.PROFILED)
    places = np.flatnonzero(profiled)
    if not len(places):
        return ()
    apart = (np.diff(places) > 1) | (np.diff(rows[places, INDEX]) > 1)
    stretches = np.split(places, np.flatnonzero(apart) + 1)
    ends = [*(int(stretch[0]) for stretch in stretches[1:]), len(rows)]
    usual = np.flatnonzero(~profiled)
    aftermaths = []
    for stretch, end in zip(stretches, ends, strict=True):
        before = usual[: np.searchsorted(usual, stretch[0])][-NEIGHBOURS:]
        after = np.arange(stretch[-1] + 1, end)[:NEIGHBOURS]
        numbers = rows[[stretch[0], stretch[-1]], INDEX]
        aftermaths.append(_aftermath(numbers, rows[before, SLOWEST], rows[after, SLOWEST]))
    return tuple(aftermaths)


def _aftermath(numbers: Column, before: Column, after: Column) -> CaptureAftermath:
    """Of the first and the last profiled step, and the seconds of the steps on either side.

    Slower is 5 % and more, if the quartiles agree (10 to 20 % were measured after CUPTI).
    """
    before_s = after_s = None
    slower = False
    if min(len(before), len(after)) >= FEWEST:
        before_s, before_third_s = np.quantile(before, (0.5, 0.75)).tolist()
        after_first_s, after_s = np.quantile(after, (0.25, 0.5)).tolist()
        slower = after_s > (1 + LIMITS.worth) * before_s and after_first_s > before_third_s
    first, last = numbers.astype(int).tolist()
    return CaptureAftermath(
        first_step=first, last_step=last, before_s=before_s, after_s=after_s, slower=slower
    )


def traces(
    steps: LeadSteps, reports: Sequence[CaptureReport], ranks: Sequence[int], *, restarted: bool
) -> tuple[TracedSteps, ...]:
    """What each trace says, and of the lowest rank whether its records do.

    Args:
        steps: Those of the lowest rank.
        reports: The analyses of the run's traces.
        ranks: Those that were read.
        restarted: Whether there are several attempts: each numbers its traces from 0, so nothing
            is compared.
    """
    rows = steps.rows()
    compared = {} if restarted else {ranks[0]: rows}
    return tuple(
        _traced(report, trace, rank, compared.get(rank, rows[:0]))
        for report in reports
        for trace in report.ranks
        if (rank := rank_of(trace.file)) is not None and rank in ranks
    )


def _traced(report: CaptureReport, trace: RankTrace, rank: int, rows: Column) -> TracedSteps:
    capture = report.capture
    # A trace may have been cut short.
    complete = range(capture.first_step, capture.first_step + capture.complete_steps)
    traced = [
        (step.step_s, step.data_wait_s, step.allreduce_tail_s)
        for step in trace.steps
        if step.step in complete
    ]
    beyond = rows[:, INDEX] - capture.first_index
    mine = rows[(beyond >= 0) & (beyond < capture.complete_steps)]
    waits_s = mine[:, HOST + Phase.DATA_WAIT]
    recorded = np.column_stack([mine[:, HOST:].sum(axis=1), waits_s, mine[:, TAIL]])
    return TracedSteps(
        file=trace.file,
        rank=rank,
        first_step=capture.first_index,
        steps=capture.complete_steps,
        answer=report.answer,
        compared=tuple(_compared(recorded, np.array(traced, np.float64))),
    )


def _compared(recorded: Column, traced: Column) -> Iterator[TracedDuration]:
    """None where a step's record was lost, or the steps have other numbers."""
    if len(recorded) == len(traced) > 0:
        step_s = float(np.median(recorded[:, 0]))
        for name, ours, theirs in zip(_WORDS, recorded.T, traced.T, strict=True):
            if not np.isnan([*ours, *theirs]).any():
                yield side_by_side(name, ours.tolist(), theirs.tolist(), step_s)


def side_by_side(
    name: str, recorded: Sequence[float], traced: Sequence[float], step_s: float
) -> TracedDuration:
    """Compare a duration step by step, in seconds.

    They disagree if both the medians and the median difference do: a process that is stopped
    between the two clocks differs in one step, not in most.
    """
    recorded_s, traced_s = float(np.median(recorded)), float(np.median(traced))
    difference_s = float(np.median(np.subtract(recorded, traced)))
    apart_s = min(abs(difference_s), abs(recorded_s - traced_s))
    agree = apart_s <= max(LIMITS.worth * max(recorded_s, traced_s), LIMITS.trifle * step_s)
    return TracedDuration(name=name, recorded_s=recorded_s, traced_s=traced_s, agree=agree)


def disagreements(traces: Sequence[TracedSteps]) -> list[str]:
    """Where records and trace differ by more than 5 %, in words."""
    return [
        f"{steps_of(traced)} (rank {traced.rank}): {_WORDS[pair.name]} {duration(pair.recorded_s)} "
        f"in the records and {duration(pair.traced_s)} in the trace"
        for traced in traces
        for pair in traced.compared
        if not pair.agree
    ]


def steps_of(traced: TracedSteps) -> str:
    """E.g. `steps 7–9`, as the records number them."""
    return step_range(traced.first_step, traced.first_step + traced.steps - 1)
