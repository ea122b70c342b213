"""Alignment of many ranks: which steps all of them recorded, from one file at a time.

Of many ranks the files are read twice, each by itself and in any order: once for the numbers and
the tags of its steps, here, and once for what is folded over the steps that all ranks have.  So no
step needs all ranks in one memory, and files may be read by other processes or machines.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.replay import steps_of
from trainperf.core.engines.base import Engine, batches, in_order
from trainperf.core.steps.block import StepBlock


FILES_AT_ONCE = (8, 32)
"""Least and most ranks of a task: a partial result is as large for many ranks as for a few, and
each task costs an engine's scheduler some milliseconds, however small it is."""

TASKS_PER_WORKER = 8
"""With more of them no worker waits long for the last task of another one."""

LACKING = {"tail_ns": 1 << 48}
"""Fact to the bit that stands, among a step's tags, for *some rank lacks it*: above those of `Tag`,
below what a float holds."""

_APART = 1 << 40
"""Between the numbers that steps of two attempts have until it is known how many there are."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKeys:
    """The steps that some ranks recorded in an attempt; merged in any order."""

    index: Ints
    """Step numbers, rising."""
    ranks: Ints
    """By how many ranks."""
    tags: Ints
    """United, with the bits of `LACKING`."""

    @classmethod
    def of(cls, blocks: Iterable[StepBlock]) -> "StepKeys":
        """Of one rank."""
        parts = [(block.index.astype(np.int64), _marked(block)) for block in blocks]
        index, tags = (
            np.concatenate([part[place] for part in parts]) if parts else np.empty(0, np.int64)
            for place in (0, 1)
        )
        return cls(index=index, ranks=np.ones(len(index), np.int64), tags=tags)

    def merge(self, other: "StepKeys") -> "StepKeys":
        """Of both."""
        if np.array_equal(self.index, other.index):
            return StepKeys(
                index=self.index, ranks=self.ranks + other.ranks, tags=self.tags | other.tags
            )
        index = np.union1d(self.index, other.index)
        ranks, tags = np.zeros_like(index), np.zeros_like(index)
        for keys in (self, other):
            places = np.searchsorted(index, keys.index)
            ranks[places] += keys.ranks
            tags[places] |= keys.tags
        return StepKeys(index=index, ranks=ranks, tags=tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSteps:
    """The steps of an attempt that all of its ranks recorded."""

    begun: int
    """Steps of earlier attempts, from which on these are numbered."""
    index: Ints
    """Numbers in the files."""
    tags: Ints

    def of(self, file: RecordFile, journal: Journal | None = None) -> Iterator[StepBlock]:
        """Those of one rank's file, numbered on and with the tags of all ranks.

        Everything else in the file goes into the *journal*.
        """
        if journal is not None:
            journal.begin(file.info, self.begun)
        for block in steps_of(file, journal):
            index = block.index.astype(np.int64)
            places = np.searchsorted(self.index, index).clip(max=max(0, len(self.index) - 1))
            common = self.index[places] == index if len(self.index) else np.zeros(len(index), bool)
            chosen = block if common.all() else block.select(common)
            if not len(chosen):
                continue
            numbered = chosen.renumbered(self.begun) if self.begun else chosen
            yield numbered.retagged(self.tags[places[common]])

    def block(self) -> StepBlock:
        """Their numbers and tags as a block whose phases are empty."""
        return StepBlock.numbered(self.index + self.begun, self.tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the first reading of some ranks' files gives."""

    journals: dict[int, Journal] = field(default_factory=dict)
    keys: dict[int, StepKeys] = field(default_factory=dict)
    """Place of the attempt in the run to its steps."""

    def add(self, other: "Survey") -> None:
        """Take that of other ranks."""
        self.journals.update(other.journals)
        for place, theirs in other.keys.items():
            ours = self.keys.get(place)
            self.keys[place] = theirs if ours is None else ours.merge(theirs)


class Alignment:
    """The ranks of a run aligned, file by file.

    Args:
        run: The opened run directory.
        engine: Where the files are read; in this process without one.
    """

    def __init__(self, run: Run, engine: Engine | None = None) -> None:
        self.run = run
        whole = Survey()
        for part in in_order(engine, surveyed, file_batches(run, engine)):
            whole.add(part)
        self.journals = {rank: whole.journals[rank] for rank in run.ranks}
        self.left_out = 0
        """Steps that some rank of their attempt does not have."""
        self.attempts: dict[int, CommonSteps] = {}
        """Place of an attempt to its steps."""
        begun = 0
        for place, files in enumerate(run.attempts):
            keys = whole.keys[place]
            begun = max(begun, files[0].chosen.begun)
            common = keys.ranks == len(files)
            self.left_out += len(common) - int(common.sum())
            self.attempts[place] = CommonSteps(
                begun=begun, index=keys.index[common], tags=keys.tags[common]
            )
            for journal in self.journals.values():
                journal.renumber_gaps(range(place * _APART, (place + 1) * _APART), begun)
            begun += int(keys.index[-1]) + 1 if len(keys.index) else 0


Files = Mapping[int, RecordFile]
"""Place of an attempt to the file that one rank wrote in it."""


def files_by_rank(run: Run) -> list[Files]:
    """The files of each rank, in the order of ranks."""
    files: dict[int, dict[int, RecordFile]] = {rank: {} for rank in run.ranks}
    for place, attempt in enumerate(run.attempts):
        for file in attempt:
            files[file.rank][place] = file
    return list(files.values())


def file_batches(run: Run, engine: Engine | None) -> Iterator[Sequence[Files]]:
    """The files of each rank, in the order of ranks, as many at a time as suits the engine."""
    files = files_by_rank(run)
    least, most = FILES_AT_ONCE
    workers = 1 if engine is None else engine.workers
    return batches(files, min(max(least, len(files) // (TASKS_PER_WORKER * workers)), most))


def surveyed(ranks: Sequence[Files]) -> Survey:
    """Read some ranks' files for the first time."""
    survey = Survey()
    for files in ranks:
        rank = next(iter(files.values())).rank
        journal = survey.journals[rank] = Journal(rank)
        for place, file in files.items():
            journal.begin(file.info, place * _APART, file.chosen)
            keys = StepKeys.of(steps_of(file, journal))
            survey.add(Survey(keys={place: keys}))
    return survey


def _marked(block: StepBlock) -> Ints:
    tags = block.tags
    for name, bit in LACKING.items():
        values = block.fact(name)
        missing = True if values is None else np.isnan(values)
        tags = tags | np.where(missing, bit, 0)
    return tags
