"""Captures of a run: what their traces say, and whether the records agree with them."""

from collections.abc import Sequence

import numpy as np

from trainperf.analysis.summary.schema import TracedSteps
from trainperf.core.arrays import Column
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, step_range
from trainperf.meters.lead_steps import HOST, INDEX, LeadSteps
from trainperf.traces.capture_files import CaptureReport, rank_of
from trainperf.traces.results import RankTrace


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
    return tuple(
        _traced(report, trace, rank, rows[:0] if restarted or rank != ranks[0] else rows)
        for report in reports
        for trace in report.ranks
        if (rank := rank_of(trace.file)) is not None and rank in ranks
    )


def _traced(report: CaptureReport, trace: RankTrace, rank: int, rows: Column) -> TracedSteps:
    """Nothing is compared where a step's record was lost, or the steps have other numbers."""
    capture = report.capture
    # A trace may have been cut short.
    complete = range(capture.first_step, capture.first_step + capture.complete_steps)
    traced = [step.step_s for step in trace.steps if step.step in complete]
    beyond = rows[:, INDEX] - capture.first_index
    mine = rows[(beyond >= 0) & (beyond < capture.complete_steps), HOST:].sum(axis=1)
    compared = len(mine) == len(traced) > 0
    return TracedSteps(
        file=trace.file,
        rank=rank,
        first_step=capture.first_index,
        steps=capture.complete_steps,
        answer=report.answer,
        recorded_s=float(np.median(mine)) if compared else None,
        traced_s=float(np.median(traced)) if compared else None,
        agree=not compared or agree(mine, np.array(traced)),
    )


def agree(recorded_s: Column, traced_s: Column) -> bool:
    """Whether the times of the same steps do, within 5 % of the larger.

    They do not if both the medians and the median difference say so: a process that is stopped
    between the two clocks differs in one step, not in most.
    """
    medians = float(np.median(recorded_s)), float(np.median(traced_s))
    apart_s = min(abs(float(np.median(recorded_s - traced_s))), abs(medians[0] - medians[1]))
    return apart_s <= LIMITS.worth * max(medians)


def disagreements(traces: Sequence[TracedSteps]) -> list[str]:
    """Where the step times of records and trace differ by more than 5 %, in words."""
    return [
        f"{steps_of(each)} (rank {each.rank}): step time is {duration(each.recorded_s)} in the "
        f"records and {duration(each.traced_s)} in the trace"
        for each in traces
        if each.recorded_s and each.traced_s and not each.agree
    ]


def steps_of(traced: TracedSteps) -> str:
    """E.g. `steps 7–9`, as the records number them."""
    return step_range(traced.first_step, traced.first_step + traced.steps - 1)
