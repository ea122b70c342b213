"""Agreement of traces with the records of the same steps, as medians."""

from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from trainperf.analysis.summary.schema import TracedDuration, TracedSteps
from trainperf.core.formatting.units import duration, step_range
from trainperf.core.phases import Phase
from trainperf.core.steps.block import Column, StepBlock
from trainperf.traces.capture_files import CaptureReport, rank_of
from trainperf.traces.results import RankTrace, TraceStep


TOLERABLE = 0.05
"""Relative difference up to which two measurements of one thing agree."""

TRIFLE = 0.01
"""Share of the step below which a difference does not matter."""

_WORDS = {
    "step": "step time is",
    "data_wait": "data wait is",
    "allreduce_tail": "all-reduce tail is",
}


class TraceAgreementFold:
    """The records of traced steps, collected in constant memory per trace.

    Args:
        captures: The analyses of the run's traces.
        ranks: The order of the blocks.
        restarted: Whether there are several attempts: each numbers its traces from 0, so nothing
            is compared.
    """

    def __init__(
        self, captures: Sequence[CaptureReport], ranks: Sequence[int], *, restarted: bool
    ) -> None:
        self._restarted = restarted
        self._traced = [
            _Traced(report, trace, ranks.index(rank))
            for report in captures
            for trace in report.ranks
            if (rank := rank_of(trace.file)) in ranks and rank is not None
        ]

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps of every rank."""
        if self._restarted:
            return
        for traced in self._traced:
            traced.observe(blocks[traced.place])

    @property
    def places(self) -> frozenset[int]:
        """Places of the ranks that have a trace."""
        return frozenset(traced.place for traced in self._traced)

    def observe_rank(self, place: int, block: StepBlock) -> None:
        """Take the next steps of the rank at a place."""
        if self._restarted:
            return
        for traced in self._traced:
            if traced.place == place:
                traced.observe(block)

    def traces(self) -> tuple[TracedSteps, ...]:
        """Each trace with its comparison, where its steps were all recorded."""
        return tuple(traced.result() for traced in self._traced)


def disagreements(traces: Sequence[TracedSteps]) -> list[str]:
    """Where records and trace differ by more than 5 %, in words."""
    return [
        f"{steps_of(traced)} (rank {traced.rank}): {_WORDS[pair.name]} {duration(pair.recorded_s)} "
        f"in the records and {duration(pair.traced_s)} in the trace"
        for traced in traces
        for pair in traced.compared
        if not pair.agree
    ]


def side_by_side(
    name: str, recorded: Sequence[float], traced: Sequence[float], step_s: float
) -> TracedDuration:
    """Compare a duration step by step, in seconds.

    They disagree if both the medians and the median difference do: a process that is stopped
    between the two clocks differs in one step, not in most.
    """
    recorded_s, traced_s = median(recorded), median(traced)
    difference_s = median(a - b for a, b in zip(recorded, traced, strict=True))
    apart_s = min(abs(difference_s), abs(recorded_s - traced_s))
    agree = apart_s <= max(TOLERABLE * max(recorded_s, traced_s), TRIFLE * step_s)
    return TracedDuration(name=name, recorded_s=recorded_s, traced_s=traced_s, agree=agree)


def steps_of(traced: TracedSteps) -> str:
    """E.g. `steps 7–9`, as the records number them."""
    return step_range(traced.first_step, traced.first_step + traced.steps - 1)


class _Traced:
    """One trace of one rank, and the records of its steps."""

    def __init__(self, report: CaptureReport, trace: RankTrace, place: int) -> None:
        self.place = place
        self._report = report
        self._trace = trace
        self._first = report.capture.first_index
        self._end = self._first + report.capture.complete_steps
        self._walls: list[float] = []
        self._waits: list[float] = []
        self._tails: list[float] = []

    def observe(self, block: StepBlock) -> None:
        index = block.index
        if not len(block) or index[-1] < self._first or index[0] >= self._end:
            return
        mine = (index >= self._first) & (index < self._end)
        self._walls += _seconds(block.wall_ns[mine])
        self._waits += _seconds(block.host_ns(Phase.DATA_WAIT)[mine])
        tails = block.fact("tail_ns")
        if tails is not None:
            self._tails += _seconds(tails[mine])

    def result(self) -> TracedSteps:
        capture = self._report.capture
        steps = self._steps()
        exposed = [step.comm_exposed_s for step in steps if step.comm_exposed_s is not None]
        return TracedSteps(
            file=self._trace.file,
            rank=rank_of(self._trace.file) or 0,
            first_step=self._first,
            steps=capture.complete_steps,
            answer=self._report.answer,
            comm_exposed_s=median(exposed) if exposed else None,
            compared=tuple(self._compared()),
        )

    def _compared(self) -> Iterator[TracedDuration]:
        steps = self._steps()
        if len(steps) != len(self._walls) or not steps:
            return  # the record of a step was lost, or the steps have other numbers
        step_s = median(self._walls)
        for name, recorded, traced in (
            ("step", self._walls, [step.step_s for step in steps]),
            ("data_wait", self._waits, [step.data_wait_s for step in steps]),
            ("allreduce_tail", self._tails, [step.allreduce_tail_s for step in steps]),
        ):
            measured = [value for value in traced if value is not None]
            if len(recorded) == len(measured) == len(steps):
                yield side_by_side(name, recorded, measured, step_s)

    def _steps(self) -> list[TraceStep]:
        """The complete steps; a trace may have been cut short."""
        first = self._report.capture.first_step
        complete = range(first, first + self._report.capture.complete_steps)
        return [step for step in self._trace.steps if step.step in complete]


def _seconds(nanoseconds: Column) -> list[float]:
    return [value / 1e9 for value in nanoseconds.tolist() if not np.isnan(value)]
