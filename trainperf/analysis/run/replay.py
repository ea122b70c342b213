"""One pass over a run: the same steps of every rank, block by block.

A synchronous step belongs to all ranks: numbers of several ranks may only be combined over steps
that every rank recorded, and a step that is unusual on one rank is unusual.

Blocks of all ranks are in memory at the same time.  Of many ranks what can be computed from one
file at a time is: see `trainperf.analysis.run.alignment`.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.machine import MachineSeries, read_machines
from trainperf.analysis.run.record_file import Damaged, RecordFile
from trainperf.core.steps.block import BLOCK_STEPS, Column, StepBlock, StepSchema


_EMPTY = StepBlock.from_rows(StepSchema(), [])

_MOST_ROWS = 65_536
"""Steps times ranks in memory at a time: blocks of more than 16 ranks are shorter."""
_FEWEST_STEPS = 64
"""Of a block, so that it is worth a call."""


class Replay:
    """One pass over a run.  `journals` and `left_out` are complete when `blocks` is exhausted."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._most = max(_FEWEST_STEPS, min(BLOCK_STEPS, _MOST_ROWS // max(1, len(run.ranks))))
        self.journals = {rank: Journal(rank) for rank in run.ranks}
        self.left_out = 0
        """Steps that some rank of their attempt does not have."""
        self.attempt = 0
        """Place of the attempt whose steps came last."""

    @cached_property
    def machines(self) -> tuple[list[MachineSeries], list[str]]:
        """What was sampled beside the run, read once, and what is wrong with it."""
        return read_machines(self.run)

    def blocks(self) -> Iterator[tuple[StepBlock, ...]]:
        """Blocks of the same steps, one per rank in the order of ranks, with their tags united.

        Steps of a later attempt are numbered on from the earlier one's.  The block of a rank that
        took no part in an attempt is empty: an elastic restart may go on with fewer ranks.
        """
        begun = 0
        for attempt, files in enumerate(self.run.attempts):
            self.attempt = attempt
            begun = max(begun, files[0].chosen.begun)
            lanes = self._lanes(files, begun)
            for common in self._aligned(list(lanes.values())):
                taken = dict(zip(lanes, common, strict=True))
                yield tuple(taken.get(rank, _EMPTY) for rank in self.journals)
            begun = max(begun, *(lane.last_index + 1 for lane in lanes.values()))

    def _lanes(self, files: tuple[RecordFile, ...], begun: int) -> dict[int, "RankLane"]:
        return {file.rank: RankLane(self._numbered(file, begun)) for file in files}

    def _numbered(self, file: RecordFile, begun: int) -> Iterator[StepBlock]:
        """The steps of a file, numbered from *begun*; everything in it goes into the journal."""
        journal = self.journals[file.rank]
        journal.begin(file.info, begun, file.chosen)
        for block in steps_of(file, journal, self._most):
            yield block.renumbered(begun) if begun else block

    def _aligned(self, lanes: list["RankLane"]) -> Iterator[tuple[StepBlock, ...]]:
        while True:
            for lane in lanes:
                lane.fill()
            until = min((lane.last_index for lane in lanes if len(lane.block)), default=None)
            if until is None:
                return
            blocks = [lane.take(until) for lane in lanes]
            common, left_out = common_steps(blocks)
            self.left_out += left_out
            if len(common[0]):
                yield common


class RankLane:
    """One rank's steps, taken up to a step number at a time."""

    def __init__(self, blocks: Iterator[StepBlock | None]) -> None:
        self._blocks = blocks
        self.block = _EMPTY
        self.last_index = -1

    def fill(self) -> None:
        """Make sure there are steps to take, unless there are no more."""
        if len(self.block):
            return
        block = next(self._blocks, None)
        if block is not None:
            self.block = block
            self.last_index = int(block.index[-1])

    def take(self, until: int) -> StepBlock:
        """Take the steps up to the number *until*."""
        if not len(self.block) or self.last_index <= until:
            taken, self.block = self.block, _EMPTY
            return taken
        chosen = self.block.index <= until
        taken, self.block = self.block.select(chosen), self.block.select(np.logical_not(chosen))
        return taken


def steps_of(
    file: RecordFile, journal: Journal | None = None, most: int = BLOCK_STEPS
) -> Iterator[StepBlock]:
    """The steps of a file that come after all before them, in blocks of *most*.

    Everything in the file goes into the *journal*, in which the attempt has begun.
    """
    last = -1.0
    for entry in file.entries(most):
        if not isinstance(entry, StepBlock):
            if journal is not None:
                journal.add(entry)
            continue
        later = rising(entry.index, last)
        block = entry if later.all() else entry.select(later)
        if journal is not None and len(block) < len(entry):
            journal.add(Damaged(len(entry) - len(block)))
        if len(block):
            last = float(block.index[-1])
            if journal is not None:
                journal.add_steps(block)
            yield block
    if journal is not None:
        journal.close()


def rising(index: Column, last: float) -> npt.NDArray[np.bool_]:
    """Which steps come after all before them: any other line was written twice or damaged."""
    before = np.maximum.accumulate(np.concatenate(([last], index[:-1])))
    return index > before


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
