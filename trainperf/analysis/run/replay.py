"""One pass over a run: the same steps of every rank, block by block.

A synchronous step belongs to all ranks: numbers of several ranks may only be combined over steps
that every rank recorded, and a step that is unusual on one rank is unusual.

Blocks of all ranks are in memory at the same time.  Of many ranks what can be computed from one
file at a time is: see `trainperf.analysis.run.alignment`.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce

import numpy as np

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.machine import MachineSeries, read_machines
from trainperf.analysis.run.record_file import RecordFile
from trainperf.core.steps.block import StepBlock, StepSchema


_EMPTY = StepBlock.from_rows(StepSchema(), [])


class Replay:
    """One pass over a run.  `journals` and `left_out` are complete when `blocks` is exhausted.

    Args:
        run: The opened run.
        machine_bytes: About how much is read of what was sampled beside it, from the end of each
            host's file; `None` for all.
    """

    def __init__(self, run: Run, machine_bytes: int | None = None) -> None:
        self.run = run
        self.journals = {rank: Journal(rank) for rank in run.ranks}
        self.left_out = 0
        """Steps that some rank of their attempt does not have."""
        self.attempt = 0
        """Place of the attempt whose steps came last."""
        self._machine_bytes = machine_bytes

    @cached_property
    def machines(self) -> tuple[list[MachineSeries], list[str]]:
        """What was sampled beside the run, read once, and what is wrong with it."""
        return read_machines(self.run, self._machine_bytes)

    def blocks(self) -> Iterator[tuple[StepBlock, ...]]:
        """Blocks of the same steps, one per rank in the order of ranks, with their tags united.

        Steps of a later attempt are numbered on from the earlier one's.  The block of a rank that
        took no part in an attempt is empty: an elastic restart may go on with fewer ranks.
        """
        for attempt, files in enumerate(self.run.attempts):
            self.attempt = attempt
            lanes = {
                file.rank: RankLane(steps_of(file, self.journals[file.rank])) for file in files
            }
            for common in self.aligned(list(lanes.values())):
                taken = dict(zip(lanes, common, strict=True))
                yield tuple(taken.get(rank, _EMPTY) for rank in self.journals)

    def aligned(
        self, lanes: Sequence["RankLane"], *, waits: bool = False
    ) -> Iterator[tuple[StepBlock, ...]]:
        """The steps that all lanes have; where one *waits*, only while every lane has some."""
        while True:
            for lane in lanes:
                lane.fill()
            reached = [float(lane.block.index[-1]) for lane in lanes if len(lane.block)]
            if not reached or (waits and len(reached) < len(lanes)):
                return
            common, left_out = common_steps([lane.take(min(reached)) for lane in lanes])
            self.left_out += left_out
            if len(common[0]):
                yield common


class RankLane:
    """One rank's steps, taken up to a step number at a time."""

    def __init__(self, blocks: Iterator[StepBlock]) -> None:
        self._blocks = blocks
        self.block = _EMPTY

    def fill(self, least: int = 1) -> None:
        """Make sure there are so many steps to take, unless there are no more."""
        while len(self.block) < least and (block := next(self._blocks, None)) is not None:
            self.block = StepBlock.joined([self.block, block]) if len(self.block) else block

    def take(self, until: float) -> StepBlock:
        """Take the steps up to the number *until*."""
        chosen = self.block.index <= until
        taken, self.block = self.block.select(chosen), self.block.select(np.logical_not(chosen))
        return taken


def steps_of(file: RecordFile, journal: Journal | None = None) -> Iterator[StepBlock]:
    """The steps of a file, numbered on; everything in the file goes into the *journal*."""
    journal = journal or Journal(file.rank)
    journal.begin(file)
    for content in file.entries():
        journal.add(content)
        if isinstance(content, StepBlock):
            yield content.renumbered(file.begun) if file.begun else content
    journal.close()


def common_steps(blocks: Sequence[StepBlock]) -> tuple[tuple[StepBlock, ...], int]:
    """The steps that all blocks have, with united tags, and how many some block lacks."""
    indices = [block.index for block in blocks]
    if all(np.array_equal(indices[0], index) for index in indices[1:]):
        return _united(blocks), 0
    shared = reduce(np.intersect1d, indices)
    every = reduce(np.union1d, indices)
    chosen = [block.select(np.isin(block.index, shared)) for block in blocks]
    return _united(chosen), len(every) - len(shared)


def _united(blocks: Sequence[StepBlock]) -> tuple[StepBlock, ...]:
    tags = reduce(np.bitwise_or, [block.tags for block in blocks])
    return tuple(
        block if np.array_equal(block.tags, tags) else block.retagged(tags) for block in blocks
    )
