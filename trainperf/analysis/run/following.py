"""A run that is followed while it is written: its steps, each read once, and the latest of them.

Only what was appended since the last look is read, and what is held does not grow with the run: per
rank the latest steps, and those that another rank has not written yet.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise

from trainperf.analysis.run.directory import Run, record_files
from trainperf.analysis.run.earlier import earlier
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.machine import MachineTails
from trainperf.analysis.run.parts import EDGE_BYTES, Parts
from trainperf.analysis.run.record_file import (
    Content,
    Damaged,
    ReadSteps,
    RecordFile,
    RecordReader,
)
from trainperf.analysis.run.replay import RankLane, Replay
from trainperf.core.places import AnyPath, ListedFile, listed
from trainperf.core.run_directory import machine_of, rank_and_attempt
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import CORE_COLUMNS, GapRecord, Totals


MOST_BYTES = 64 << 20
"""Of all record files together, that are read when a run begins to be followed: the end of each.
As much is held of steps that another rank has not written yet."""

LATEST_S = 60.0
LEAST_LATEST = 64
"""The latest steps are those of a minute, and so many at least."""


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
        self.earlier = earlier(run)
        """What the attempts before this one came to."""
        files = tuple(replace(file, begun=0, chosen=ReadSteps()) for file in run.attempts[-1])
        # The machines are joined with the latest steps alone.
        super().__init__(replace(run, attempts=(files,)), machines=[])
        self._content = _Content.of(run)
        each = most_bytes // len(files)
        width = len(CORE_COLUMNS) + len(run.info.columns)
        self._most = 1 + each // (8 * width)
        self._lanes = {
            file.rank: _FollowedRank(file, max(EDGE_BYTES, each), self._most) for file in files
        }
        self._tails = MachineTails(files)

    @property
    def documents(self) -> Sequence[object]:
        """Changes when a file does that is neither of records nor of a machine."""
        return self._content.documents

    def look(self) -> bool:
        """List the directory again; whether it still has the files that are followed, and no other.

        Raises:
            OSError, RunError: It cannot be read.
        """
        before, self._content = self._content, _Content.of(self.run)
        parts = self._content.parts
        if before.writers != self._content.writers or any(
            lane.reader.lines.replaced(parts[rank]) for rank, lane in self._lanes.items()
        ):
            return False
        files = tuple(replace(file, parts=tuple(parts[file.rank])) for file in self.run.attempts[0])
        for file in files:
            self._lanes[file.rank].reader.lines.parts = file.parts
        self.run = replace(self.run, attempts=(files,))
        self._tails.look(self._content.machines)
        return True

    def blocks(self) -> Iterator[tuple[StepBlock, ...]]:
        """The steps that all ranks have written since the last call; journals are up to date then.

        A rank that is far behind is not waited for.
        """
        lanes = list(self._lanes.values())
        # What a rank has told of its loop is known while its steps are looked at.
        self.journals = {rank: lane.journal for rank, lane in self._lanes.items()}
        while True:
            yield from self.aligned(lanes, waits=True)
            for lane in lanes:
                lane.fill(self._most)
            ahead = [lane for lane in lanes if len(lane.block) >= self._most]
            if not ahead:
                break
            if not all(len(lane.block) for lane in lanes):
                self.left_out += sum(len(lane.take(lane.last_index)) for lane in ahead)
        self.journals = {rank: lane.closed() for rank, lane in self._lanes.items()}
        self.run = replace(self.run, window=lanes[0].window)

    def latest(self) -> Replay | None:
        """A pass over the latest steps, which were read; `None` before the first."""
        until = min(lane.reader.last_step for lane in self._lanes.values())
        begins = [lane.latest_from(until) for lane in self._lanes.values()]
        if None in begins:
            return None
        chosen = ReadSteps(first=max(filter(None, begins), default=0), last=until)
        files = tuple(
            replace(file, chosen=chosen, held=self._lanes[file.rank].recent)
            for file in self.run.attempts[0]
        )
        window = f"steps {chosen.first:,.0f} to {until:,.0f}"
        run = replace(self.run, attempts=(files,), window=window, warnings=())
        return Replay(run, machines=self._tails.series())

    @property
    def held_steps(self) -> int:
        """Steps in memory, all ranks together."""
        return sum(len(lane.block) + lane.recent_steps for lane in self._lanes.values())


class _FollowedRank(RankLane):
    """One rank: what it has written, and what of it is held."""

    def __init__(self, file: RecordFile, most_bytes: int, most: int) -> None:
        super().__init__(self)
        self._most = most
        self.reader = RecordReader(file, most_bytes)
        self.journal = Journal(file.rank)
        """Of its file so far, which is still open."""
        self.window = ""
        """Of which steps it is read, for people; empty for all."""
        self.recent: list[Content] = []
        self._entries = self.reader.entries()
        begins = ReadSteps() if self.reader.lines.is_whole else ReadSteps(first=1)
        self.journal.begin(replace(file, chosen=begins))

    def __iter__(self) -> "_FollowedRank":
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
        blocks = [content for content in self.recent if isinstance(content, StepBlock)]
        first, steps = blocks[0].index[0], sum(map(len, blocks))
        for block, later in pairwise(blocks):
            steps -= len(block)
            span_s = (blocks[-1].start_ns[-1] - later.start_ns[0]) / 1e9
            if steps < LEAST_LATEST or (span_s < 2 * LATEST_S and steps < self._most):
                break
            first = later.index[0]
        counted = [content.at_step for content in self.recent if isinstance(content, Totals)]
        before = max((step for step in counted if step < first), default=-1)
        self.recent = [
            content
            for content in self.recent
            if _step_of(content) >= (before if isinstance(content, Totals) else first or -1)
        ]

    @property
    def recent_steps(self) -> int:
        """The latest steps, which are held."""
        return sum(len(content) for content in self.recent if isinstance(content, StepBlock))

    def closed(self) -> Journal:
        """The journal as if its file ended here."""
        self.journal.gaps_after.clear()
        journal = copy(self.journal)
        journal.close()
        return journal

    def latest_from(self, until: float) -> float | None:
        """The first of the latest steps up to a number; `None` without one."""
        held = [content for content in self.recent if isinstance(content, StepBlock)]
        blocks = [block.select(block.index <= until) for block in held]
        if not any(map(len, blocks)):
            return None
        block = StepBlock.joined(blocks)
        late = block.start_ns >= block.start_ns[-1] - LATEST_S * 1e9
        return float(block.index[min(late.argmax(), max(0, len(block) - LEAST_LATEST))])


def _step_of(content: Content) -> float:
    """Number of the first step that something belongs to."""
    if isinstance(content, StepBlock):
        return float(content.index[0])
    if isinstance(content, GapRecord):
        return content.after_step
    return content.at_step if isinstance(content, Totals) else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What a listing of the run directory shows."""

    writers: frozenset[tuple[int, int, int]]
    """Rank and attempt of each record file, of the attempt that is followed and later ones; of
    these the size too, as an attempt is followed from when its header is there."""
    parts: Mapping[int, Parts]
    """Rank to its parts in that attempt."""
    machines: Sequence[ListedFile]
    documents: Sequence[tuple[str, int, float]]

    @classmethod
    def of(cls, run: Run) -> "_Content":
        """As it is now."""
        content, attempt = listed(run.path), run.attempts[-1][0].attempt
        records, _ = record_files(run.path, content)
        return cls(
            writers=frozenset(
                (rank, of, sum(part.size_bytes for part in parts) if of > attempt else 0)
                for (rank, of), parts in records.items()
                if of >= attempt
            ),
            parts={rank: parts for (rank, of), parts in records.items() if of == attempt},
            machines=[file for file in content if machine_of(file.path.name)],
            documents=[
                (file.path.name, 0 if file.is_dir else file.size_bytes, file.modified_s)
                for file in content
                if not file.path.name.startswith(".")
                and not machine_of(file.path.name)
                and not rank_and_attempt(file.path.name)
            ],
        )
