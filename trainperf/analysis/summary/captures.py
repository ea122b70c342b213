"""Captures of a run: whether traces agree with the records, and whether steps after stay slower."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

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
            _Traced(report, trace, rank, ranks.index(rank))
            for report in captures
            for trace in report.ranks
            if (rank := rank_of(trace.file)) in ranks and rank is not None
        ]

    @property
    def places(self) -> frozenset[int]:
        """Places of the ranks that have a trace."""
        return frozenset(traced.place for traced in self._traced)

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps of every rank."""
        for place in self.places:
            self.observe_rank(place, blocks[place])

    def observe_rank(self, place: int, block: StepBlock) -> None:
        """Take the next steps of the rank at a place."""
        for traced in self._traced:
            if traced.place == place and len(block) and not self._restarted:
                traced.observe(block)

    def traces(self) -> tuple[TracedSteps, ...]:
        """Each trace with its comparison, where its steps were all recorded."""
        return tuple(traced.result() for traced in self._traced)


class _Traced:
    """One trace of one rank, and the records of its steps."""

    def __init__(self, report: CaptureReport, trace: RankTrace, rank: int, place: int) -> None:
        self.place = place
        self._report, self._trace, self._rank = report, trace, rank
        self._rows = [np.empty((0, len(_WORDS)))]

    def observe(self, block: StepBlock) -> None:
        """Take the next steps."""
        capture, tails = self._report.capture, block.fact("tail_ns")
        beyond = block.index - capture.first_index
        mine = (beyond >= 0) & (beyond < capture.complete_steps)
        missing = np.full(len(block), np.nan)
        waits, tails = block.host_ns(Phase.DATA_WAIT), missing if tails is None else tails
        self._rows.append(np.column_stack([block.wall_ns, waits, tails])[mine] / 1e9)

    def result(self) -> TracedSteps:
        """What the trace says, and whether the records do."""
        capture = self._report.capture
        # A trace may have been cut short.
        complete = range(capture.first_step, capture.first_step + capture.complete_steps)
        steps = [step for step in self._trace.steps if step.step in complete]
        exposed = [step.comm_exposed_s for step in steps if step.comm_exposed_s is not None]
        traced = [(step.step_s, step.data_wait_s, step.allreduce_tail_s) for step in steps]
        return TracedSteps(
            file=self._trace.file,
            rank=self._rank,
            first_step=capture.first_index,
            steps=capture.complete_steps,
            answer=self._report.answer,
            comm_exposed_s=float(np.median(exposed)) if exposed else None,
            compared=tuple(_compared(np.concatenate(self._rows), np.array(traced, np.float64))),
        )


def _compared(
    recorded: npt.NDArray[np.float64], traced: npt.NDArray[np.float64]
) -> Iterator[TracedDuration]:
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


@dataclass(slots=True, kw_only=True)
class _Stretch:
    """A stretch of profiled steps whose neighbours are still being collected."""

    first: int
    last: int
    before: list[float]
    after: list[float] = field(default_factory=list)

    def result(self) -> CaptureAftermath:
        """So far.

        A ratio counts from 5 % on, if the quartiles agree (10 to 20 % were measured after CUPTI).
        """
        before_s = after_s = ratio = None
        slower = False
        if min(len(self.before), len(self.after)) >= FEWEST:
            before_s, before_third_s = np.quantile(self.before, (0.5, 0.75)).tolist()
            after_first_s, after_s = np.quantile(self.after, (0.25, 0.5)).tolist()
            ratio = after_s / before_s if before_s and after_s else None
            slower = bool(ratio and ratio > 1 + LIMITS.worth and after_first_s > before_third_s)
        return CaptureAftermath(
            first_step=self.first,
            last_step=self.last,
            before_s=before_s,
            after_s=after_s,
            ratio=ratio,
            slower=slower,
        )


class CaptureFold:
    """Collects the neighbours of every stretch of profiled steps, in constant memory each."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=NEIGHBOURS)
        self._stretches: list[_Stretch] = []

    def observe(self, block: StepBlock, walls_s: Column) -> None:
        """Take the next block, with the wall time of each step."""
        profiled = (block.tags & Tag.PROFILED) != 0
        steady = (block.tags & DISQUALIFYING) == 0
        if not profiled.any():
            self._neighbours(walls_s[steady].tolist())
            return
        rows = (block.index.tolist(), profiled.tolist(), steady.tolist(), walls_s.tolist())
        for step, in_capture, usual, wall_s in zip(*rows, strict=True):
            if in_capture:
                self._profiled(int(step))
            elif usual:
                self._neighbours([wall_s])

    def captures(self) -> tuple[CaptureAftermath, ...]:
        """The captures seen so far."""
        return tuple(stretch.result() for stretch in self._stretches)

    def _profiled(self, step: int) -> None:
        latest = self._stretches[-1] if self._stretches else None
        if latest is None or latest.after or latest.last != step - 1:
            self._stretches.append(_Stretch(first=step, last=step, before=list(self._recent)))
        self._stretches[-1].last = step

    def _neighbours(self, walls_s: list[float]) -> None:
        if self._stretches:
            after = self._stretches[-1].after
            after += walls_s[: NEIGHBOURS - len(after)]
        self._recent.extend(walls_s[-NEIGHBOURS:])
