"""One pass over a run: the same steps of every rank, together or from one file at a time.

A synchronous step belongs to all ranks: numbers of several ranks may only be combined over steps
that every rank recorded, and a step that is unusual on one rank is unusual.

Of a few ranks the files are read once, and blocks of all ranks are in memory at the same time.  Of
many they are read twice, each by itself and in any order: once for the numbers and the tags of its
steps, and once for what is folded over the steps that all ranks have.  So no step needs all ranks
in one memory, and files may be read by other processes or machines.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import fact
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.machine import MachineSeries, read_machines
from trainperf.analysis.run.record_file import RecordFile
from trainperf.core.engines.base import Engine, batches, in_order
from trainperf.core.steps.block import StepBlock, StepSchema


FILES_AT_ONCE = 8
"""Ranks of a task: a partial result is as large for several ranks as for one, and each task costs
an engine's scheduler some milliseconds; yet every worker has several."""

LACKING = {"tail_ns": 1 << 48}
"""Fact to the bit that stands, among a step's tags, for *some rank lacks it*: above those of `Tag`,
below what a float holds.  It is set where files are read one at a time."""

Ints = npt.NDArray[np.int64]

Files = Mapping[int, RecordFile]
"""Place of an attempt to the file that one rank wrote in it."""

_EMPTY = StepBlock.from_rows(StepSchema(), [])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKeys:
    """The steps that some ranks recorded in an attempt; merged in any order."""

    index: Ints
    """Step numbers of the run, rising."""
    ranks: Ints
    """By how many ranks."""
    tags: Ints
    """United over the ranks."""

    @classmethod
    def of(cls, block: StepBlock) -> "StepKeys":
        """Of one rank."""
        index = block.index.astype(np.int64)
        return cls(index=index, ranks=np.ones_like(index), tags=block.tags)

    def merge(self, other: "StepKeys") -> "StepKeys":
        """Of both."""
        index = self.index
        if not np.array_equal(index, other.index):
            index = np.union1d(index, other.index)
        ranks, tags = np.zeros_like(index), np.zeros_like(index)
        for keys in (self, other):
            places = np.searchsorted(index, keys.index)
            ranks[places] += keys.ranks
            tags[places] |= keys.tags
        return StepKeys(index=index, ranks=ranks, tags=tags)

    def common(self, ranks: int) -> "StepKeys":
        """The steps that so many ranks recorded."""
        chosen = self.ranks == ranks
        return StepKeys(index=self.index[chosen], ranks=self.ranks[chosen], tags=self.tags[chosen])

    def part_of(self, block: StepBlock) -> StepBlock:
        """Those that are in a block of one rank, with the tags of all."""
        places = np.searchsorted(self.index, block.index)
        common = places < len(self.index)
        common[common] = self.index[places[common]] == block.index[common]
        part, tags = block.select(common), self.tags[places[common]]
        return part if np.array_equal(part.tags, tags) else part.retagged(tags)

    def of_file(self, file: RecordFile, journal: Journal | None = None) -> Iterator[StepBlock]:
        """Those of one rank's file.  Everything else in the file goes into the *journal*."""
        parts = map(self.part_of, steps_of(file, journal))
        return (part for part in parts if len(part))


class Replay:
    """One pass over a run: `blocks`, or of many ranks `align` and then files by themselves.

    `journals` and `left_out` are complete when `blocks` is exhausted, or `align` is done.

    Args:
        run: The opened run.
        machine_bytes: About how much is read of what was sampled beside it, from the end of each
            host's file; `None` for all, 0 for nothing.
    """

    def __init__(self, run: Run, machine_bytes: int | None = None) -> None:
        self.run = run
        self.journals = {rank: Journal(rank) for rank in run.ranks}
        self.left_out = 0
        """Steps that some rank of their attempt does not have."""
        self.attempt = 0
        """Place of the attempt whose steps came last."""
        self.attempts: list[StepKeys] = []
        """The steps of each attempt that all of its ranks recorded, once aligned."""
        self._machine_bytes = machine_bytes

    @cached_property
    def machines(self) -> tuple[list[MachineSeries], list[str]]:
        """What was sampled beside the run, read once, and what is wrong with it."""
        if self._machine_bytes == 0:
            return [], []
        return read_machines(self.run, self._machine_bytes)

    def blocks(self) -> Iterator[tuple[StepBlock, ...]]:
        """Blocks of the same steps, one per rank in the order of ranks, with their tags united.

        Steps of a later attempt are numbered on from the earlier one's.  The block of a rank that
        took no part in an attempt is empty: an elastic restart may go on with fewer ranks.
        """
        for attempt, files in enumerate(self.run.attempts):
            self.attempt = attempt
            lanes = {file.rank: steps_of(file, self.journals[file.rank]) for file in files}
            for pieces in _abreast(lanes):
                every = reduce(StepKeys.merge, map(StepKeys.of, pieces.values()))
                common = self._common(every, len(files))
                if len(common.index):
                    taken = {rank: common.part_of(block) for rank, block in pieces.items()}
                    yield tuple(taken.get(rank, _EMPTY) for rank in self.journals)

    def align(self, engine: Engine | None = None) -> None:
        """Find the steps that all ranks of each attempt have, from one file at a time.

        Args:
            engine: Where the files are read; in this process without one.
        """
        keys: dict[int, StepKeys] = {}
        for journals, part in in_order(engine, surveyed, file_batches(self.run)):
            self.journals |= journals
            _merge(keys, part)
        self.attempts = [
            self._common(keys[place], len(files)) for place, files in enumerate(self.run.attempts)
        ]

    def _common(self, keys: StepKeys, ranks: int) -> StepKeys:
        common = keys.common(ranks)
        self.left_out += len(keys.index) - len(common.index)
        return common


def _abreast(lanes: Mapping[int, Iterator[StepBlock]]) -> Iterator[dict[int, StepBlock]]:
    """The steps of several ranks, up to the same number at a time."""
    left = dict.fromkeys(lanes, _EMPTY)
    while True:
        left = {
            rank: block if len(block) else next(lanes[rank], _EMPTY) for rank, block in left.items()
        }
        reached = min((block.index[-1] for block in left.values() if len(block)), default=None)
        if reached is None:
            return
        yield {rank: block.select(block.index <= reached) for rank, block in left.items()}
        left = {rank: block.select(block.index > reached) for rank, block in left.items()}


def steps_of(file: RecordFile, journal: Journal | None = None) -> Iterator[StepBlock]:
    """The steps of a file, numbered on; everything in the file goes into the *journal*."""
    journal = journal or Journal(file.rank)
    journal.begin(file)
    for content in file.entries():
        journal.add(content)
        if isinstance(content, StepBlock):
            yield content.renumbered(file.begun) if file.begun else content
    journal.close()


def file_batches(run: Run) -> Iterator[Sequence[Files]]:
    """The files of each rank, in the order of ranks, as many at a time as a task has."""
    attempts = [{file.rank: file for file in files} for files in run.attempts]
    files = [
        {place: attempt[rank] for place, attempt in enumerate(attempts) if rank in attempt}
        for rank in run.ranks
    ]
    return batches(files, FILES_AT_ONCE)


def surveyed(ranks: Sequence[Files]) -> tuple[dict[int, Journal], dict[int, StepKeys]]:
    """Read some ranks' files for the first time: their journals, and their steps by attempt."""
    journals: dict[int, Journal] = {}
    keys: dict[int, StepKeys] = {}
    for files in ranks:
        for place, file in files.items():
            journal = journals.setdefault(file.rank, Journal(file.rank))
            numbered = [_numbered(block) for block in steps_of(file, journal)]
            _merge(keys, {place: StepKeys.of(StepBlock.joined([_EMPTY, *numbered]))})
    return journals, keys


def _merge(ours: dict[int, StepKeys], theirs: Mapping[int, StepKeys]) -> None:
    for place, keys in theirs.items():
        ours[place] = ours[place].merge(keys) if place in ours else keys


def _numbered(block: StepBlock) -> StepBlock:
    """Numbers and tags alone, with a bit for each fact of `LACKING` that a step has not."""
    bits = [np.where(np.isnan(fact(block, name)), bit, 0) for name, bit in LACKING.items()]
    return StepBlock.numbered(block.index.astype(np.int64), reduce(np.bitwise_or, bits, block.tags))
