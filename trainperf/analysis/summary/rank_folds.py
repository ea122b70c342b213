"""Partial results of some ranks' files, each read by itself: mergeable in any order.

A rank's own statistics, and what is known of each step together with other ranks: the longest wall
time, and the waits at each synchronisation point.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import PIECE_STEPS, JobBlock, OverRanks, gaps_after
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.record_file import RecordFile, pieces
from trainperf.analysis.run.replay import LACKING, Files, Replay, StepKeys, file_batches
from trainperf.analysis.summary.schema import MOST_RANKS
from trainperf.analysis.summary.waits import FACT, Waits, typical_places
from trainperf.core.engines.base import Engine, in_order
from trainperf.core.readings import ALLREDUCE_TAIL_S, STEP_MEAN_S
from trainperf.core.steps.block import Column, StepBlock
from trainperf.meters import METERS
from trainperf.meters.fold import Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """What is to be made of each file."""

    attempts: Sequence[StepKeys]
    """The steps of each."""
    places: Mapping[int, int]
    """Rank to its place among the ranks."""
    points: Mapping[int, Sequence[str]]
    """Attempt to the synchronisation points to judge: who is late can be told where all ranks of
    the run took part."""
    typical: frozenset[int]
    """Places of the ranks that stand for the typical one."""
    observed: bool
    """Whether the sums of a page or of a comparison are wanted."""


@dataclass(slots=True, kw_only=True)
class JobSteps:
    """The steps of an attempt over some ranks."""

    walls_ns: Column
    """Longest wall time per step."""
    waits: dict[str, Waits]
    """Point to the waits there, in the steady steps in which every rank's is known."""
    over: OverRanks | None = None

    def add(self, other: "JobSteps") -> None:
        """Take those of other ranks."""
        self.walls_ns = np.maximum(self.walls_ns, other.walls_ns)
        for point, waits in self.waits.items():
            waits.add(other.waits[point])
        if self.over is not None and other.over is not None:
            self.over = self.over.plus(other.over)


@dataclass(frozen=True, slots=True)
class RankPartials:
    """What the second reading of some ranks' files gives."""

    meters: dict[int, Fold] = field(default_factory=dict)
    """By rank."""
    steps: dict[int, JobSteps] = field(default_factory=dict)
    """Place of an attempt to its steps."""

    def add(self, other: "RankPartials") -> None:
        """Take those of other ranks."""
        self.meters.update(other.meters)
        for place, theirs in other.steps.items():
            mine = self.steps.setdefault(place, theirs)
            if mine is not theirs:
                mine.add(theirs)


def read_ranks(
    run: Run, aligned: Replay, points: Sequence[str], engine: Engine | None, *, observed: bool
) -> RankPartials:
    """Read the files of all ranks for the second time, some at a time and in any process.

    *Observed*: with the sums that pages and comparisons are made of.
    """
    plan = RankPlan(
        attempts=aligned.attempts,
        places={rank: place for place, rank in enumerate(run.ranks)},
        points={
            place: points if len(files) == len(run.ranks) else ()
            for place, files in enumerate(run.attempts)
        },
        typical=typical_places(len(run.ranks)),
        observed=observed,
    )
    whole = RankPartials()
    for part in in_order(engine, partial(folded, plan), file_batches(run)):
        whole.add(part)
    return whole


def folded(plan: RankPlan, ranks: Sequence[Files]) -> RankPartials:
    """Read some ranks' files for the second time."""
    partials = RankPartials()
    for files in ranks:
        rank = next(iter(files.values())).rank
        fold = partials.meters[rank] = Fold(METERS)
        for place, file in files.items():
            steps = _read(plan, place, file, fold)
            if steps is not None:
                partials.add(RankPartials(steps={place: steps}))
    return partials


def _read(plan: RankPlan, attempt: int, file: RecordFile, fold: Fold) -> JobSteps | None:
    """One file: its steps go into the *fold*, and what is merged with other ranks is returned."""
    points, place = plan.points[attempt], plan.places[file.rank]
    journal = Journal(file.rank) if plan.observed else None
    blocks: list[StepBlock] = []
    walls_ns, waits = [], []
    for block in plan.attempts[attempt].of_file(file, journal):
        steady = block.steady()
        fold.observe(block, steady)
        measured = {point: steady.select(measured_by_all(point, steady.tags)) for point in points}
        waits.append({p: Waits.of(p, place, of, plan.typical) for p, of in measured.items()})
        walls_ns.append(block.wall_ns)
        if plan.observed:
            blocks.append(block)
    if not walls_ns:
        return None
    joined = {point: Waits.joined([part[point] for part in waits]) for point in points}
    steps = JobSteps(walls_ns=np.concatenate(walls_ns), waits=joined)
    if journal is not None:
        whole = StepBlock.joined(blocks)
        steps.over = OverRanks.of(whole, gaps_after(whole.index, journal))
    return steps


def measured_by_all(point: str, tags: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Steps in which no rank lacks the wait at *point*."""
    measured: npt.NDArray[np.bool_] = (tags & LACKING.get(FACT.get(point, ""), 0)) == 0
    return measured


def job_blocks(aligned: Replay, whole: RankPartials, most: int) -> Iterator[JobBlock]:
    """The steps of all ranks, and the blocks of those that are looked at one by one.

    Args:
        aligned: The ranks.
        whole: What the second reading gave, observed.
        most: Ranks that stand for all.
    """
    run = aligned.run
    meters = [whole.meters[rank] for rank in run.ranks]
    typical, drawn = typical_places(len(run.ranks), most), drawn_places(meters)
    slowest = _by_value(meters, STEP_MEAN_S)[-1:]
    kept = {0, *typical, *drawn, *slowest}
    places = {rank: place for place, rank in enumerate(run.ranks)}
    for attempt, files in enumerate(run.attempts):
        steps = whole.steps.get(attempt)
        if steps is None or steps.over is None:
            continue
        lanes = {
            places[file.rank]: pieces(aligned.attempts[attempt].of_file(file), PIECE_STEPS)
            for file in files
            if places[file.rank] in kept or file is files[0]
        }
        every = np.arange(len(steps.walls_ns))
        for begin in every[::PIECE_STEPS].tolist():
            yield JobBlock(
                blocks={place: next(lane) for place, lane in lanes.items()},
                over=steps.over.take(every[begin : begin + PIECE_STEPS]),
                everybody=len(files) == len(places),
                typical=typical,
                drawn=drawn,
            )


def drawn_places(meters: Sequence[Fold], most: int = MOST_RANKS) -> frozenset[int]:
    """Places of the ranks whose all-reduce tails are shortest and longest, *most* together."""
    ordered = _by_value(meters, ALLREDUCE_TAIL_S)
    return frozenset([*ordered[: most // 2], *ordered[-(most // 2) :]])


def _by_value(meters: Sequence[Fold], name: str) -> list[int]:
    """Places of the ranks that have a reading, by its value."""
    reductions = ((place, fold.reduction(name)) for place, fold in enumerate(meters))
    values = {place: reduction.value() for place, reduction in reductions if reduction is not None}
    measured = {place: value for place, value in values.items() if value is not None}
    return sorted(measured, key=lambda place: (measured[place], place))
