"""A run that is followed while it is written: its steps, each read once, and the latest of them.

Only what was appended since the last look is read, and what is held does not grow with the run: per
rank the latest steps, and those that another rank has not written yet.
"""

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from trainperf.analysis.run.directory import Run, record_files
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.parts import EDGE_BYTES
from trainperf.analysis.run.record_file import (
    Content,
    Damaged,
    ReadSteps,
    RecordFile,
    RecordReader,
    end_of,
)
from trainperf.analysis.run.replay import RankLane, Replay
from trainperf.core.places import AnyPath, listed
from trainperf.core.run_directory import machine_of, rank_and_attempt
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import CORE_COLUMNS, GapRecord, Totals


MOST_BYTES = 16 << 20
"""Of all record files together, that are read when a run begins to be followed: the end of each,
as it is on the disk.  No more is held of their steps."""

LEAST_BYTES = 1 << 18
"""Of one file: some thousand steps."""

LATEST_S = 60.0
LEAST_LATEST = 64
"""The latest steps are those of a minute, and so many at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAttempts:
    """The attempts before the one that is followed; what they cost is in the report."""

    number: int
    steps: int
    """Of all of them."""
    reason: str
    """How the last of them ended, as in `EndMark`; empty where it ended without a word."""


class FollowedRun(Replay):
    """The latest attempt of a run, as a pass that is gone on with: `blocks` gives what is new.

    Args:
        path: The run directory, or one above it.
        most_bytes: How much of what is there already is read.

    Raises:
        RunError: There is no run.
    """

    def __init__(self, path: AnyPath, most_bytes: int = MOST_BYTES) -> None:
        run = Run.open(path)
        before = run.attempts[:-1]
        ended = end_of(before[-1][0]).mark if before else None
        self.earlier = EarlierAttempts(
            number=len(before),
            steps=run.attempts[-1][0].begun,
            reason=ended.reason if ended else "",
        )
        files = tuple(replace(file, begun=0, chosen=ReadSteps()) for file in run.attempts[-1])
        # The machines are joined with the latest steps alone.
        super().__init__(replace(run, attempts=(files,)), machine_bytes=0)
        each = max(LEAST_BYTES, most_bytes // len(files))
        self.lanes = {file.rank: FollowedRank(file, each) for file in files}
        self._others: dict[tuple[int, int], int] | None = None
        self.documents: Sequence[tuple[str, int, float]] = ()
        """Changes when a file does that is neither of records nor of a machine."""
        self.look()

    def look(self) -> bool:
        """List the directory again; whether it still has the files that are followed, and no other.

        Raises:
            OSError, RunError: It cannot be read.
        """
        content, (files,) = listed(self.run.path), self.run.attempts
        records, _ = record_files(self.run.path, content)
        parts = {file.rank: records.pop((file.rank, file.attempt), []) for file in files}
        # Another attempt, or rank, is followed from when its header is there: its file has grown.
        before, self._others = (
            self._others,
            {writer: sum(part.size_bytes for part in its) for writer, its in records.items()},
        )
        self.documents = [
            (file.path.name, 0 if file.is_dir else file.size_bytes, file.modified_s)
            for file in content
            if not file.path.name.startswith(".")
            and not machine_of(file.path.name)
            and not rank_and_attempt(file.path.name)
        ]
        if before not in (None, self._others) or any(
            not parts[rank] or lane.reader.lines.replaced(parts[rank])
            for rank, lane in self.lanes.items()
        ):
            return False
        files = tuple(replace(file, parts=parts[file.rank]) for file in files)
        for file in files:
            self.lanes[file.rank].reader.lines.parts = file.parts
        self.run = replace(self.run, attempts=(files,))
        return True

    def blocks(self) -> Iterator[tuple[StepBlock, ...]]:
        """The steps that all ranks have written since the last call; journals are up to date then.

        Where a rank is behind, the others are read on as far as their steps can be held.
        """
        lanes = list(self.lanes.values())
        # What a rank has told of its loop is known while its steps are looked at.
        self.journals = {rank: lane.journal for rank, lane in self.lanes.items()}
        yield from self.aligned(lanes, waits=True)
        for lane in lanes:
            lane.fill(lane.most)
        self.journals = {rank: lane.closed() for rank, lane in self.lanes.items()}
        self.run = replace(self.run, window=lanes[0].window)

    def latest(self) -> Replay | None:
        """A pass over the latest steps, which were read; `None` before the first."""
        lanes = self.lanes
        until = min(lane.reader.last_step for lane in lanes.values())
        held = {rank: lane.held_until(until) for rank, lane in lanes.items()}
        if not all(held.values()):
            return None
        first = max(_latest_from(blocks, LATEST_S) for blocks in held.values())
        chosen = ReadSteps(first=first, last=until)
        files = tuple(
            replace(file, chosen=chosen, held=lanes[file.rank].recent)
            for file in self.run.attempts[0]
        )
        window = f"steps {first:,.0f} to {until:,.0f}"
        run = replace(self.run, attempts=(files,), window=window, warnings=())
        return Replay(run, machine_bytes=EDGE_BYTES)


class FollowedRank(RankLane):
    """One rank: what it has written, and what of it is held."""

    def __init__(self, file: RecordFile, most_bytes: int) -> None:
        super().__init__(self)
        self.most = 1 + most_bytes // (8 * (len(CORE_COLUMNS) + len(file.info.columns)))
        """Steps that are held."""
        self.reader = RecordReader(file, most_bytes)
        self.journal = Journal(file.rank)
        """Of its file so far, which is still open."""
        self.window = ""
        """Of which steps it is read, for people; empty for all."""
        self.recent: list[Content] = []
        self._entries = self.reader.entries()
        begins = ReadSteps() if self.reader.lines.is_whole else ReadSteps(first=1)
        self.journal.begin(replace(file, chosen=begins))

    def __iter__(self) -> "FollowedRank":
        return self

    def __next__(self) -> StepBlock:
        """The next steps, if there are any by now."""
        for content in self._entries:
            self.journal.add(content)
            if not isinstance(content, Damaged):
                self.recent.append(content)
            if isinstance(content, StepBlock):
                if not (self.window or self.reader.lines.is_whole):
                    self.window = f"from step {content.index[0]:,.0f} on"
                self._forget()
                return content
        self._entries = self.reader.entries()
        raise StopIteration

    def _forget(self) -> None:
        """Keep the steps of twice the latest time, and what belongs to them."""
        first = _latest_from(self.held_until(math.inf), 2 * LATEST_S)
        first = max(first, self.reader.last_step - self.most)
        counted = [content.at_step for content in self.recent if isinstance(content, Totals)]
        before = max((step for step in counted if step < first), default=-1)
        self.recent = [
            content
            for content in self.recent
            if _step_of(content) >= (before if isinstance(content, Totals) else first or -1)
        ]

    def held_until(self, step: float) -> list[StepBlock]:
        """The latest steps up to a number."""
        blocks = [content for content in self.recent if isinstance(content, StepBlock)]
        return [part for block in blocks if len(part := block.select(block.index <= step))]

    def closed(self) -> Journal:
        """The journal as if its file ended here."""
        self.journal.gaps_after.clear()
        journal = copy(self.journal)
        journal.close()
        return journal


def _latest_from(blocks: Sequence[StepBlock], span_s: float) -> float:
    """The first of the steps of so long a time, and of `LEAST_LATEST` at least."""
    index = np.concatenate([block.index for block in blocks])
    start_ns = np.concatenate([block.start_ns for block in blocks])
    late = start_ns >= start_ns[-1] - span_s * 1e9
    return float(index[min(int(late.argmax()), max(0, len(index) - LEAST_LATEST))])


def _step_of(content: Content) -> float:
    """Number of the last step that something belongs to."""
    if isinstance(content, StepBlock):
        return float(content.index[-1])
    if isinstance(content, GapRecord):
        return content.after_step
    return content.at_step if isinstance(content, Totals) else math.inf
