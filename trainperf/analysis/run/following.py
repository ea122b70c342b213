"""A run that is followed while it is written: its steps, each read once, and the latest of them.

Only what was appended since the last look is read, and what is held does not grow with the run: per
rank the latest steps, and those that another rank has not written yet.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

from trainperf.analysis.run.directory import Run, record_files
from trainperf.analysis.run.earlier import earlier
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.machine import MachineSeries, MachineTails
from trainperf.analysis.run.record_file import Damaged, ReadSteps, RecordFile, Unread
from trainperf.analysis.run.replay import RankLane, Replay, common_steps, rising
from trainperf.analysis.run.tail import Parts, RecordTail, by_number
from trainperf.core.places import AnyPath, ListedFile, listed
from trainperf.core.run_directory import machine_of, rank_and_attempt
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock
from trainperf.core.steps.codec import Entry
from trainperf.core.steps.records import GapRecord, Totals


MOST_BYTES = 64 << 20
"""Of all record files together, that are read when a run begins to be followed: the end of each."""

LEAST_BYTES = 1 << 18
"""Of one file: some thousand steps."""

_MOST_ROWS = 1 << 18
"""Steps times ranks that are held."""
_FEWEST_STEPS = 256

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
        files = run.attempts[-1]
        super().__init__(replace(run, attempts=(files,)))
        self._content = _Content.of(run, files[0].attempt)
        each = max(LEAST_BYTES, most_bytes // len(files))
        self._most_held = max(_FEWEST_STEPS, _MOST_ROWS // len(files))
        self._lanes_of = {
            file.rank: _FollowedRank(file, self._content.parts[file.rank], each)
            for file in files
            if file.rank in self._content.parts
        }
        self._tails = MachineTails(files)
        self._index = -1.0

    @cached_property
    def machines(self) -> tuple[list[MachineSeries], list[str]]:
        """None: they are joined with the latest steps alone."""
        return [], []

    @property
    def documents(self) -> tuple[tuple[str, int, float], ...]:
        """Changes when a file does that is neither of records nor of a machine."""
        return self._content.others

    def look(self) -> bool:
        """List the directory again; whether it still has the files that are followed, and no other.

        Raises:
            OSError, RunError: It cannot be read.
        """
        before, attempt = self._content, self.run.attempts[0][0].attempt
        self._content = now = _Content.of(self.run, attempt)
        followed = self._lanes_of.items()
        if now.writers != before.writers or any(
            rank not in now.parts or lane.tail.lines.replaced(now.parts[rank])
            for rank, lane in followed
        ):
            return False
        files = tuple(_as_listed(file, now.parts[file.rank]) for file in self.run.attempts[0])
        self.run = replace(self.run, attempts=(files,))
        self._tails.look(now.machines)
        return True

    def blocks(self) -> Iterator[tuple[StepBlock, ...]]:
        """The steps that all ranks have written since the last call; journals are up to date then.

        A rank that is far behind is not waited for.
        """
        lanes = list(self._lanes_of.values())
        # What a rank has told of its loop is known while its steps are looked at.
        self.journals = {rank: lane.journal for rank, lane in self._lanes_of.items()}
        while True:
            grew = [lane.grow(self._content.parts[lane.rank], self._most_held) for lane in lanes]
            yield from self._common(lanes)
            behind = any(not new and not lane.held for new, lane in zip(grew, lanes, strict=True))
            dropped = sum(lane.drop(self._most_held) for lane in lanes) if behind else 0
            self.left_out += dropped
            if not dropped and not any(grew):
                break
        self.journals = {rank: lane.closed() for rank, lane in self._lanes_of.items()}
        self.run = replace(self.run, window=self._window(lanes[0]))

    def _common(self, lanes: Sequence["_FollowedRank"]) -> Iterator[tuple[StepBlock, ...]]:
        while True:
            for each in lanes:
                each.lane.fill()
            if not all(len(each.lane.block) for each in lanes):
                return
            until = min(each.lane.last_index for each in lanes)
            common, left_out = common_steps([each.lane.take(until) for each in lanes])
            self.left_out += left_out
            if len(common[0]):
                yield common

    def _window(self, first: "_FollowedRank") -> str:
        if first.tail.lines.is_whole or first.first_step is None:
            return ""
        return f"from step {first.first_step:,} on"

    def latest(self) -> Replay | None:
        """A pass over the latest steps, which were read; `None` before the first."""
        lanes = self._lanes_of.values()
        until = min(lane.last_step for lane in lanes)
        begins = [first for lane in lanes if (first := lane.latest_from(until)) is not None]
        if until < 0 or len(begins) < len(lanes):
            return None
        chosen = ReadSteps(first=max(begins), last=int(until))
        files = tuple(
            RecentFile.of(replace(file, chosen=chosen), self._lanes_of[file.rank])
            for file in self.run.attempts[0]
        )
        window = f"steps {chosen.first:,} to {int(until):,}"
        run = replace(self.run, attempts=(files,), window=window, warnings=())
        return _LatestSteps(run, self._tails.series())

    @property
    def held_steps(self) -> int:
        """Steps in memory, all ranks together."""
        return sum(lane.held + lane.recent_steps for lane in self._lanes_of.values())


class _LatestSteps(Replay):
    """Steps in memory, with what the machines did meanwhile."""

    def __init__(self, run: Run, machines: list[MachineSeries]) -> None:
        super().__init__(run)
        self._machines = machines

    @cached_property
    def machines(self) -> tuple[list[MachineSeries], list[str]]:
        """The latest samples."""
        return self._machines, []


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentFile(RecordFile):
    """The latest entries of a record file, from memory."""

    blocks: tuple[StepBlock, ...] = ()
    others: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, file: RecordFile, rank: "_FollowedRank") -> "RecentFile":
        """Those of a rank."""
        fields = {name: getattr(file, name) for name in RecordFile.__slots__}
        return cls(**fields, blocks=tuple(rank.recent), others=tuple(rank.others))

    def _all(
        self,
        most: int,  # noqa: ARG002 they are in memory: smaller blocks save none
    ) -> Iterator[StepBlock | Entry | Damaged | Unread]:
        yield from self.others
        yield from self.blocks


class _FollowedRank:
    """One rank: what it has written, and what of it is held."""

    def __init__(self, file: RecordFile, parts: Parts, most_bytes: int) -> None:
        self.rank = file.rank
        self.tail = RecordTail(file.info, parts, most_bytes)
        self.lane = RankLane(self)
        self.first_step: int | None = None
        self.last_step = -1.0
        self.recent: deque[StepBlock] = deque()
        self.others: list[Entry] = []
        self._queue: deque[StepBlock] = deque()
        self.journal = Journal(file.rank)
        """Of its file so far, which is still open."""
        begins = ReadSteps() if self.tail.lines.is_whole else ReadSteps(first=1)
        self.journal.begin(file.info, 0, begins)

    def __iter__(self) -> "_FollowedRank":
        return self

    def __next__(self) -> StepBlock:
        """The next block that no other rank was joined with yet."""
        if not self._queue:
            raise StopIteration
        return self._queue.popleft()

    @property
    def held(self) -> int:
        """Steps that other ranks are waited for with."""
        return sum(map(len, self._queue)) + len(self.lane.block)

    @property
    def recent_steps(self) -> int:
        """The latest steps, which are held."""
        return sum(map(len, self.recent))

    def grow(self, parts: Parts, most: int) -> bool:
        """Read on, unless so many steps are held; whether there was anything."""
        if self.held >= most:
            return False
        entries = self.tail.read(parts)
        if entries is None:
            return False
        for entry in entries:
            if isinstance(entry, StepBlock):
                self._take(entry)
            else:
                self.journal.add(entry)
                if not isinstance(entry, Damaged):
                    self.others.append(entry)
        self.journal.gaps_after.clear()
        self._forget(most)
        return True

    def _take(self, block: StepBlock) -> None:
        later = rising(block.index, self.last_step)
        block = block if later.all() else block.select(later)
        if not len(block):
            return
        if self.first_step is None:
            self.first_step = int(block.index[0])
        self.last_step = float(block.index[-1])
        self.journal.add_steps(block)
        self._queue.append(block)
        self.recent.append(block)

    def _forget(self, most: int) -> None:
        """Keep the steps of twice the latest time, and what belongs to them."""
        while len(self.recent) > 1:
            rest = self.recent_steps - len(self.recent[0])
            ended, begins = self.recent[-1], self.recent[1]
            span_s = float(ended.start_ns[-1] - begins.start_ns[0]) / 1e9
            if rest < LEAST_LATEST or (span_s < 2 * LATEST_S and rest < most):
                break
            self.recent.popleft()
        if not self.recent:
            return
        first = float(self.recent[0].index[0])
        totals = [entry for entry in self.others if isinstance(entry, Totals)]
        before = [entry for entry in totals if entry.at_step < first][-1:]
        kept = [*before, *(entry for entry in totals if entry.at_step >= first)]
        gaps = [
            entry
            for entry in self.others
            if not isinstance(entry, Totals)
            and (not isinstance(entry, GapRecord) or entry.after_step >= first)
        ]
        self.others = [*kept, *gaps]

    def drop(self, most: int) -> int:
        """Give up the oldest block that others are waited for with, of too many; its steps."""
        if self.held < most:
            return 0
        if not len(self.lane.block):
            self.lane.fill()
        return len(self.lane.take(self.lane.last_index))

    def closed(self) -> Journal:
        """The journal as if its file ended here."""
        journal = copy(self.journal)
        journal.close()
        return journal

    def latest_from(self, until: float) -> int | None:
        """The first of the latest steps up to a number; `None` without one."""
        blocks = [block.select(block.index <= until) for block in self.recent]
        if not sum(map(len, blocks)):
            return None
        block = StepBlock.joined(blocks)
        late = block.start_ns >= block.start_ns[-1] - LATEST_S * 1e9
        place = min(int(late.argmax()), max(0, len(block) - LEAST_LATEST))
        return int(block.index[max(place, len(block) - BLOCK_STEPS)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What a listing of the run directory shows."""

    writers: frozenset[tuple[int, int, int]]
    """Rank and attempt of each record file, of the attempt that is followed and later ones; of
    these the size too, as an attempt is followed from when its header is there."""
    parts: Mapping[int, Parts]
    """Rank to its parts in that attempt."""
    machines: Sequence[ListedFile] = field(default=())
    others: tuple[tuple[str, int, float], ...] = ()

    @classmethod
    def of(cls, run: Run, attempt: int) -> "_Content":
        """As it is now."""
        content = listed(run.path)
        records, _ = record_files(run.path, content)
        writers = frozenset(
            (rank, of, sum(part.size_bytes for part in parts) if of > attempt else 0)
            for (rank, of), parts in records.items()
            if of >= attempt
        )
        machines = [file for file in content if machine_of(file.path.name)]
        return cls(
            writers=writers,
            parts={
                rank: by_number(parts) for (rank, of), parts in records.items() if of == attempt
            },
            machines=machines,
            others=tuple(
                (file.path.name, 0 if file.is_dir else file.size_bytes, file.modified_s)
                for file in content
                if not (
                    file.path.name.startswith(".")
                    or machine_of(file.path.name)
                    or rank_and_attempt(file.path.name)
                )
            ),
        )


def _as_listed(file: RecordFile, parts: Parts) -> RecordFile:
    """The file with the time and size that it has now."""
    return replace(
        file,
        size_bytes=sum(part.size_bytes for part in parts.values()),
        modified_s=max(part.modified_s for part in parts.values()),
    )
