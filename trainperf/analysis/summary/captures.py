"""Captures of a run: whether traces agree with the records, and whether steps after stay slower."""

from collections.abc import Iterator, Sequence

import numpy as np

from trainperf.analysis.summary.schema import CaptureAftermath, TracedDuration, TracedSteps
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, step_range
from trainperf.core.phases import DISQUALIFYING, Phase, Tag
from trainperf.core.steps.block import Column, StepBlock
from trainperf.traces.capture_files import CaptureReport, rank_of
from trainperf.traces.results import RankTrace


NEIGHBOURS = 50
"""Steady steps compared on either side of a capture."""

FEWEST = 5
"""Fewest steps on a side that have quartiles."""

_WORDS = {
    "step": "step time is",
    "data_wait": "data wait is",
    "allreduce_tail": "all-reduce tail is",
}
"""What is compared between a trace and the records."""

_INDEX, _PROFILED, _SLOWEST, _WALL = range(4)


class CaptureFold:
    """Keeps the profiled steps of the lowest rank and their neighbours, so many per capture."""

    def __init__(self) -> None:
        self._rows = np.empty((0, _WALL + len(_WORDS)))

    def observe(self, block: StepBlock, slowest_ns: Column) -> None:
        """Take the next steps, with the wall time of each on the slowest rank."""
        profiled, tails = (block.tags & Tag.PROFILED) != 0, block.fact("tail_ns")
        tails = np.full(len(block), np.nan) if tails is None else tails
        times_ns = [slowest_ns, block.wall_ns, block.host_ns(Phase.DATA_WAIT), tails]
        told = np.column_stack([block.index, profiled, np.column_stack(times_ns) / 1e9])
        rows = np.concatenate([self._rows, told[profiled | ((block.tags & DISQUALIFYING) == 0)]])
        around = np.flatnonzero(rows[:, _PROFILED])[:, None] + np.arange(
            -NEIGHBOURS, NEIGHBOURS + 1
        )
        latest = np.arange(len(rows) - NEIGHBOURS, len(rows))
        kept = np.unique(np.append(around, latest))
        self._rows = rows[kept[(kept >= 0) & (kept < len(rows))]]

    def captures(self) -> tuple[CaptureAftermath, ...]:
        """The captures so far."""
        rows = self._rows
        places = np.flatnonzero(rows[:, _PROFILED])
        if not len(places):
            return ()
        apart = (np.diff(places) > 1) | (np.diff(rows[places, _INDEX]) > 1)
        stretches = np.split(places, np.flatnonzero(apart) + 1)
        ends = [*(stretch[0] for stretch in stretches[1:]), len(rows)]
        return tuple(
            _aftermath(rows, stretch, int(end))
            for stretch, end in zip(stretches, ends, strict=True)
        )

    def traces(
        self, captures: Sequence[CaptureReport], ranks: Sequence[int], *, restarted: bool
    ) -> tuple[TracedSteps, ...]:
        """What each trace says, and of the lowest rank whether its records do.

        Args:
            captures: The analyses of the run's traces.
            ranks: Those that were read.
            restarted: Whether there are several attempts: each numbers its traces from 0, so
                nothing is compared.
        """
        compared = {} if restarted else {ranks[0]: self._rows}
        return tuple(
            _traced(report, trace, rank, compared.get(rank, self._rows[:0]))
            for report in captures
            for trace in report.ranks
            if (rank := rank_of(trace.file)) is not None and rank in ranks
        )


def _aftermath(rows: Column, stretch: Column, end: int) -> CaptureAftermath:
    """Of a stretch of profiled rows, before the one that begins at *end*.

    A ratio counts from 5 % on, if the quartiles agree (10 to 20 % were measured after CUPTI).
    """
    earlier = rows[: stretch[0]]
    before = earlier[earlier[:, _PROFILED] == 0][-NEIGHBOURS:, _SLOWEST]
    after = rows[stretch[-1] + 1 : end][:NEIGHBOURS, _SLOWEST]
    before_s = after_s = ratio = None
    slower = False
    if min(len(before), len(after)) >= FEWEST:
        before_s, before_third_s = np.quantile(before, (0.5, 0.75)).tolist()
        after_first_s, after_s = np.quantile(after, (0.25, 0.5)).tolist()
        ratio = after_s / before_s if before_s and after_s else None
        slower = bool(ratio and ratio > 1 + LIMITS.worth and after_first_s > before_third_s)
    return CaptureAftermath(
        first_step=int(rows[stretch[0], _INDEX]),
        last_step=int(rows[stretch[-1], _INDEX]),
        before_s=before_s,
        after_s=after_s,
        ratio=ratio,
        slower=slower,
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
    beyond = rows[:, _INDEX] - capture.first_index
    recorded = rows[(beyond >= 0) & (beyond < capture.complete_steps), _WALL:]
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
