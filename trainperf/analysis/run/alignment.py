"""Alignment of many ranks: which steps all of them recorded, from one file at a time.

Of many ranks the files are read twice, each by itself and in any order: once for the numbers and
the tags of its steps, here, and once for what is folded over the steps that all ranks have.  So no
step needs all ranks in one memory, and files may be read by other processes or machines.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import fact
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.replay import steps_of
from trainperf.core.engines.base import Engine, batches, in_order
from trainperf.core.steps.block import StepBlock


FILES_AT_ONCE = 8
"""Ranks of a task: a partial result is as large for several ranks as for one, and each task costs
an engine's scheduler some milliseconds; yet every worker has several."""

LACKING = {"tail_ns": 1 << 48}
"""Fact to the bit that stands, among a step's tags, for *some rank lacks it*: above those of `Tag`,
below what a float holds."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKeys:
    """The steps that some ranks recorded in an attempt; merged in any order."""

    index: Ints
    """Step numbers of the run, rising."""
    ranks: Ints
    """By how many ranks."""
    tags: Ints
    """United, with the bits of `LACKING`."""

    @classmethod
    def of(cls, blocks: Iterable[StepBlock]) -> "StepKeys":
        """Of one rank."""
        parts = [np.stack([block.index.astype(np.int64), _marked(block)]) for block in blocks]
        index, tags = np.concatenate([np.empty((2, 0), np.int64), *parts], axis=1)
        return cls(index=index, ranks=np.ones_like(index), tags=tags)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSteps:
    """The steps of an attempt that all of its ranks recorded."""

    index: Ints
    """Step numbers of the run."""
    tags: Ints

    def of(self, file: RecordFile, journal: Journal | None = None) -> Iterator[StepBlock]:
        """Those of one rank's file, with the tags of all ranks.

        Everything else in the file goes into the *journal*.
        """
        for block in steps_of(file, journal):
            places = np.searchsorted(self.index, block.index)
            common = places < len(self.index)
            common[common] = self.index[places[common]] == block.index[common]
            if common.any():
                chosen = block if common.all() else block.select(common)
                yield chosen.retagged(self.tags[places[common]])

    def block(self) -> StepBlock:
        """Their numbers and tags as a block whose phases are empty."""
        return StepBlock.numbered(self.index, self.tags)


class Alignment:
    """The ranks of a run aligned, file by file.

    Args:
        run: The opened run directory.
        engine: Where the files are read; in this process without one.
    """

    def __init__(self, run: Run, engine: Engine | None = None) -> None:
        self.run = run
        self.journals: dict[int, Journal] = {}
        self.left_out = 0
        """Steps that some rank of their attempt does not have."""
        self.attempts: dict[int, CommonSteps] = {}
        """Place of an attempt to its steps."""
        keys: dict[int, StepKeys] = {}
        for journals, part in in_order(engine, surveyed, file_batches(run)):
            self.journals |= journals
            _merge(keys, part)
        for place, files in enumerate(run.attempts):
            common = keys[place].ranks == len(files)
            self.left_out += len(common) - int(common.sum())
            self.attempts[place] = CommonSteps(
                index=keys[place].index[common], tags=keys[place].tags[common]
            )


Files = Mapping[int, RecordFile]
"""Place of an attempt to the file that one rank wrote in it."""


def file_batches(run: Run) -> Iterator[Sequence[Files]]:
    """The files of each rank, in the order of ranks, as many at a time as a task has."""
    files: dict[int, dict[int, RecordFile]] = {rank: {} for rank in run.ranks}
    for place, attempt in enumerate(run.attempts):
        for file in attempt:
            files[file.rank][place] = file
    return batches(list(files.values()), FILES_AT_ONCE)


def surveyed(ranks: Sequence[Files]) -> tuple[dict[int, Journal], dict[int, StepKeys]]:
    """Read some ranks' files for the first time: their journals, and their steps by attempt."""
    journals: dict[int, Journal] = {}
    keys: dict[int, StepKeys] = {}
    for files in ranks:
        for place, file in files.items():
            journal = journals.setdefault(file.rank, Journal(file.rank))
            _merge(keys, {place: StepKeys.of(steps_of(file, journal))})
    return journals, keys


def _merge(ours: dict[int, StepKeys], theirs: Mapping[int, StepKeys]) -> None:
    for place, keys in theirs.items():
        ours[place] = ours[place].merge(keys) if place in ours else keys


def _marked(block: StepBlock) -> Ints:
    """Tags, with a bit for each fact of `LACKING` that a step has not."""
    bits = [np.where(np.isnan(fact(block, name)), bit, 0) for name, bit in LACKING.items()]
    return reduce(np.bitwise_or, bits, block.tags)
