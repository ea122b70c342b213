"""Partial results of some ranks' files, each read by itself: mergeable in any order.

A rank's own statistics, and what is known of each step together with other ranks: the longest wall
time, and the waits at each synchronisation point.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import PIECE_STEPS, JobBlock, OverRanks, gaps_after
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.record_file import RecordFile, pieces
from trainperf.analysis.run.replay import LACKING, Files, Replay, StepKeys, file_batches
from trainperf.analysis.summary.waits import FACT, Waits, typical_places
from trainperf.core.engines.base import Engine, in_order
from trainperf.core.steps.block import Column, StepBlock
from trainperf.meters import METERS
from trainperf.meters.fold import Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """What is to be made of each file."""

    attempts: Sequence[StepKeys]
    """The steps of each."""
    ranks: Sequence[int]
    """Of the run."""
    points: Mapping[int, Sequence[str]]
    """Attempt to the synchronisation points to judge: who is late can be told where all ranks of
    the run took part."""
    observed: bool
    """Whether the sums of a page or of a comparison are wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSteps:
    """The steps of an attempt over some ranks."""

    walls_ns: Column
    """Longest wall time per step."""
    waits: dict[str, Waits]
    """Point to the waits there, in the steady steps in which every rank's is known."""
    over: OverRanks | None = None

    def merge(self, other: "JobSteps") -> "JobSteps":
        """With those of other ranks."""
        return JobSteps(
            walls_ns=np.maximum(self.walls_ns, other.walls_ns),
            waits={point: waits.merge(other.waits[point]) for point, waits in self.waits.items()},
            over=self.over and other.over and self.over.plus(other.over),
        )


@dataclass(frozen=True, slots=True)
class RankPartials:
    """What the second reading of some ranks' files gives."""

    meters: dict[int, Fold] = field(default_factory=dict)
    """By rank."""
    steps: dict[int, JobSteps] = field(default_factory=dict)
    """Place of an attempt to its steps."""

    def merge(self, other: "RankPartials") -> "RankPartials":
        """With those of other ranks."""
        both = self.steps.keys() & other.steps.keys()
        merged = {place: self.steps[place].merge(other.steps[place]) for place in both}
        return RankPartials(self.meters | other.meters, self.steps | other.steps | merged)


def read_ranks(
    run: Run, aligned: Replay, points: Sequence[str], engine: Engine | None, *, observed: bool
) -> RankPartials:
    """Read the files of all ranks for the second time, some at a time and in any process.

    *Observed*: with the sums that pages and comparisons are made of.
    """
    plan = RankPlan(
        attempts=aligned.attempts,
        ranks=run.ranks,
        points={
            place: points if len(files) == len(run.ranks) else ()
            for place, files in enumerate(run.attempts)
        },
        observed=observed,
    )
    return reduce(RankPartials.merge, in_order(engine, partial(folded, plan), file_batches(run)))


def folded(plan: RankPlan, ranks: Sequence[Files]) -> RankPartials:
    """Read some ranks' files for the second time."""
    partials = RankPartials()
    for files in ranks:
        fold = Fold(METERS)
        read = {place: _read(plan, place, file, fold) for place, file in files.items()}
        steps = {place: each for place, each in read.items() if each is not None}
        rank = next(iter(files.values())).rank
        partials = partials.merge(RankPartials({rank: fold}, steps))
    return partials


def _read(plan: RankPlan, attempt: int, file: RecordFile, fold: Fold) -> JobSteps | None:
    """One file: its steps go into the *fold*, and what is merged with other ranks is returned."""
    place, over = plan.ranks.index(file.rank), None
    typical = typical_places(len(plan.ranks))
    journal = Journal(file.rank) if plan.observed else None
    waits: dict[str, list[Waits]] = {point: [] for point in plan.points[attempt]}
    walls_ns: list[Column] = []
    blocks: list[StepBlock] = []
    for block in plan.attempts[attempt].of_file(file, journal):
        steady = block.steady()
        fold.observe(block, steady)
        walls_ns.append(block.wall_ns)
        for point, parts in waits.items():
            measured = steady.select(measured_by_all(point, steady.tags))
            parts.append(Waits.of(point, place, measured, typical))
        if journal is not None:
            blocks.append(block)
    if not walls_ns:
        return None
    if journal is not None:
        whole = StepBlock.joined(blocks)
        over = OverRanks.of(whole, gaps_after(whole.index, journal))
    return JobSteps(
        walls_ns=np.concatenate(walls_ns),
        waits={point: Waits.joined(parts) for point, parts in waits.items()},
        over=over,
    )


def measured_by_all(point: str, tags: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Steps in which no rank lacks the wait at *point*."""
    measured: npt.NDArray[np.bool_] = (tags & LACKING.get(FACT.get(point, ""), 0)) == 0
    return measured


def job_blocks(
    aligned: Replay, whole: RankPartials, typical: Collection[int], late: Collection[int]
) -> Iterator[JobBlock]:
    """The steps of all ranks, and the blocks of those that are looked at one by one.

    Args:
        aligned: The ranks.
        whole: What the second reading gave, observed.
        typical: Places of ranks that stand for all.
        late: Places of ranks that are looked at besides.
    """
    places = {rank: place for place, rank in enumerate(aligned.run.ranks)}
    for attempt, files in enumerate(aligned.run.attempts):
        steps = whole.steps.get(attempt)
        if steps is None or steps.over is None:
            continue
        lanes = {
            places[file.rank]: pieces(aligned.attempts[attempt].of_file(file), PIECE_STEPS)
            for file in files
            if file is files[0] or places[file.rank] in {*typical, *late}
        }
        every = np.arange(len(steps.walls_ns))
        for begin in every[::PIECE_STEPS].tolist():
            yield JobBlock(
                blocks={place: next(lane) for place, lane in lanes.items()},
                over=steps.over.take(every[begin : begin + PIECE_STEPS]),
                everybody=len(files) == len(places),
                typical=typical,
            )
