"""Record files in memory, of a run that is looked at again and again while it is written.

Record files are only ever appended to: only what was appended is read.  One that is no longer the
file it was (another header, shorter, changed without growing) is read anew.
"""

import math
from dataclasses import replace
from itertools import takewhile

from trainperf.analysis.run.record_file import (
    Content,
    ReadSteps,
    RecordFile,
    RecordReader,
    pieces,
)
from trainperf.analysis.run.window import Attempts
from trainperf.core.run_directory import is_packed
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock
from trainperf.core.steps.records import CORE_COLUMNS, Totals


LEAST_BYTES = 1 << 18
"""That are held of each file where there are many: some thousand steps."""


class HeldFiles:
    """The record files of a run, as they were when they were last read.

    Args:
        most_bytes: About how much of them together is held, of the end of each, on the disk and as
            steps; `None` for all.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self._most_bytes = most_bytes
        self._files: dict[tuple[int, int], HeldFile] = {}

    @property
    def held_bytes(self) -> int:
        """Memory the decoded steps take."""
        return sum(block.cells().nbytes for held in self._files.values() for block in held.blocks)

    def read(self, attempts: Attempts) -> Attempts:
        """The same files with what they hold by now; one that is far ahead of another waits for it.

        Raises:
            OSError: One cannot be read.
        """
        every = {(file.rank, file.attempt): file for files in attempts for file in files}
        most = self._most_bytes and max(LEAST_BYTES, self._most_bytes // len(every))
        before, self._files = self._files, {}
        for key, file in every.items():
            held = before.get(key)
            grew = held is not None and held.continues(file)
            self._files[key] = held if held is not None and grew else HeldFile(file, most)
        reached = self._reached()
        for key, file in every.items():
            self._files[key].read(file, reached)
        reached = self._reached()
        return tuple(
            tuple(self._files[file.rank, file.attempt].latest(file, reached) for file in files)
            for files in attempts
        )

    def _reached(self) -> float:
        return min(held.reader.last_step for held in self._files.values())


class HeldFile:
    """What one record file held when it was last read."""

    def __init__(self, file: RecordFile, most_bytes: int | None) -> None:
        row_bytes = 8 * (len(CORE_COLUMNS) + len(file.info.columns))
        self.most_steps = 1 + most_bytes // row_bytes if most_bytes else math.inf
        self.reader = RecordReader(file, most_bytes)
        self.is_whole = self.reader.lines.is_whole
        """Whether all of it is held."""
        self.blocks: list[StepBlock] = []
        self._info = file.info
        self._others: list[Content] = []

    def continues(self, file: RecordFile) -> bool:
        """Whether it is this file, and there at most is more of it than before."""
        lines = self.reader.lines
        if file.info != self._info or lines.number > len(file.parts):
            return False
        if lines.number == len(file.parts) or not lines.offset:
            return True
        reading = file.parts[lines.number]
        grew = reading.size_bytes > lines.offset or lines.number + 1 < len(file.parts)
        return file.parts == lines.parts or (grew and not is_packed(reading.path.name))

    def read(self, file: RecordFile, reached: float) -> None:
        """Read what was appended, unless steps of others, who reached that one, are far behind."""
        if self.reader.last_step > reached + self.most_steps:
            return
        self.reader.lines.parts = file.parts
        for content in self.reader.entries():
            if isinstance(content, StepBlock):
                self.blocks.append(content)
            else:
                self._others.append(content)
        # As they are cut when the whole file is read: sums of floats depend on it.
        full = list(takewhile(lambda block: len(block) == BLOCK_STEPS, self.blocks))
        self.blocks = [*full, *pieces(iter(self.blocks[len(full) :]), BLOCK_STEPS)]

    def latest(self, file: RecordFile, reached: float) -> RecordFile:
        """The file with what is held of it: all else first, and steps in blocks, in order.

        Blocks that are far before the step which all ranks have *reached* are forgotten.
        """
        kept = [each for each in self.blocks if each.index[-1] > reached - self.most_steps]
        self.is_whole &= len(kept) == len(self.blocks)
        self.blocks = kept
        if self.is_whole:
            return replace(file, held=[*self._others, *self.blocks])
        chosen = ReadSteps(first=max(1.0, self.blocks[0].index[0]) if self.blocks else 1.0)
        counted = [
            each
            for each in self._others
            if isinstance(each, Totals) and each.at_step < chosen.first
        ]
        self._others = [
            each
            for each in self._others
            if chosen.part_of(each) is not None and each not in counted[:-1]
        ]
        return replace(file, held=[*self._others, *self.blocks], chosen=chosen)
