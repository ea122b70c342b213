"""Record files: what one rank wrote during one attempt, streamed part by part.

A part is lines, or packed (`core.steps.segment`); of a packed one those stretches are read that are
wanted.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainperf.analysis.run.parts import CHUNK_BYTES, EDGE_BYTES, Parts, contents
from trainperf.core.errors import RunError
from trainperf.core.places import AnyPath
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock, StepSchema
from trainperf.core.steps.codec import Entry, decode_entry, decode_steps
from trainperf.core.steps.records import EndMark, GapRecord, RunInfo, Totals
from trainperf.core.steps.segment import SegmentIndex, read_index
from trainperf.core.steps.stretches import Stretches


@dataclass(frozen=True, slots=True)
class Damaged:
    """Lines that are damaged and were skipped."""

    lines: int


Content = StepBlock | Entry | Damaged
"""What a record file holds, but for its header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSteps:
    """Which steps of a file are read, by their numbers in it."""

    first: float = 0
    last: float = math.inf
    """Both ends are in it."""

    @property
    def is_window(self) -> bool:
        """Whether there may be steps before or after it."""
        return self.first > 0 or self.last < math.inf

    def part_of(self, content: Content) -> Content | None:
        """What of it is read; `None` if nothing is."""
        if isinstance(content, GapRecord):
            # A gap before the first step is before step 0.
            within = (self.first or -1) <= content.after_step <= self.last
            return content if within else None
        if not isinstance(content, StepBlock):
            return content
        inside = (content.index >= self.first) & (content.index <= self.last)
        block = content.select(inside)
        return block if len(block) else None

    def touched(self, stretches: Stretches) -> Stretches:
        """The stretches that have some of them."""
        first, last = stretches["first"], stretches["last"]
        return stretches.select((last >= self.first) & (first <= self.last))


EVERY_STEP = ReadSteps()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """What one rank wrote during one attempt."""

    parts: Parts
    """As they were listed when the run was opened, without those that cannot be read."""
    rank: int
    attempt: int
    info: RunInfo
    indexes: Mapping[AnyPath, SegmentIndex] = field(default_factory=dict)
    """Of its packed parts."""
    begun: int = 0
    """Steps of earlier attempts, from which on its own are numbered."""
    chosen: ReadSteps = EVERY_STEP
    held: Sequence[Content] | None = None
    """What it holds, where that is in memory; else it is read."""

    @property
    def path(self) -> AnyPath:
        """The file, or its first part."""
        return self.parts[0].path

    @property
    def size_bytes(self) -> int:
        """Of all parts."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def modified_s(self) -> float:
        """When it was last written to, seconds since 1970 by the storage's clock."""
        return max(part.modified_s for part in self.parts)

    def entries(self, at_once: int = BLOCK_STEPS) -> Iterator[Content]:
        """Its contents, as far as they are chosen; steps in blocks of so many, in order.

        Other entries may come before steps that were written earlier; their fields place them.
        Cumulative ones are not those of a window: what they grew by in it is.
        """
        for content in read(self, at_once=at_once) if self.held is None else self.held:
            chosen = self.chosen.part_of(content)
            if chosen is not None:
                yield chosen

    def stretches(self) -> Stretches:
        """Those of its packed parts, in order."""
        return Stretches.joined([index.stretches for index in self.indexes.values()])


def read(
    file: RecordFile, most_bytes: int | None = None, at_once: int = BLOCK_STEPS
) -> Iterator[Content]:
    """The contents of a record file.

    Every step comes after all before it: any other line was written twice, or is damaged.

    Args:
        file: Of which stretches that are not chosen are not read.
        most_bytes: About how much of it is read, from its end; `None` for all.
        at_once: Steps of a block.

    Raises:
        OSError: A part cannot be read.
    """
    chunk_bytes = CHUNK_BYTES * at_once // BLOCK_STEPS
    return _in_blocks(_rising(_decoded(file, most_bytes, chunk_bytes)), at_once)


def _decoded(file: RecordFile, most_bytes: int | None, chunk_bytes: int) -> Iterator[Content]:
    schema = StepSchema(file.info.columns, file.info.device)
    for content in contents(file.parts, most_bytes, chunk_bytes=chunk_bytes):
        if not isinstance(content, list):
            yield from _unpacked(file, content)
            continue
        # A million steps are a million lines: they are separated by the list, not one by one.
        steps = [line for line in content if line[:1] == b"["]
        if len(steps) < len(content):
            others = (line for line in content if line[:1] != b"[")
            yield from (decode_entry(line) or Damaged(1) for line in others)
        block, damaged = decode_steps(schema, steps)
        yield block
        if damaged:
            yield Damaged(damaged)


def _unpacked(file: RecordFile, part: AnyPath) -> Iterator[Content]:
    steps = 1
    with part.open("rb") as packed:
        try:
            index = file.indexes.get(part) or read_index(packed)
            wanted = file.chosen.touched(index.stretches)
            steps = int(wanted["steps"].sum()) or 1
            yield from (decode_entry(line) or Damaged(1) for line in index.others(packed))
            yield from index.blocks(packed, wanted)
        except (RunError, ValueError):
            yield Damaged(steps)


def _rising(contents: Iterable[Content]) -> Iterator[Content]:
    last = -1.0
    for content in contents:
        if not isinstance(content, StepBlock):
            yield content
            continue
        reached = np.maximum.accumulate(np.concatenate(([last], content.index)))
        rising = content.select(content.index > reached[:-1])
        last = reached[-1]
        yield rising
        if len(rising) < len(content):
            yield Damaged(len(content) - len(rising))


def _in_blocks(contents: Iterable[Content], size: int) -> Iterator[Content]:
    """The same steps, *size* at a time, the last may be fewer; what is no step comes at once."""
    rest: StepBlock | None = None
    for content in contents:
        if not isinstance(content, StepBlock):
            yield content
            continue
        rest = content if rest is None else StepBlock.joined([rest, content])
        while len(rest) >= size:
            yield rest.take(np.arange(size))
            rest = rest.take(np.arange(size, len(rest)))
    if rest is not None and len(rest):
        yield rest


def held(file: RecordFile, most_bytes: int | None = None) -> RecordFile:
    """The same file, in memory.

    Args:
        file: All of it, or a window.
        most_bytes: About how much of it is held, of its end; `None` for all that is chosen.

    Raises:
        OSError: It cannot be read.
    """
    if most_bytes is None or file.size_bytes <= most_bytes:
        return replace(file, held=list(file.entries()))
    ending = list(_ending(file, most_bytes))
    steps = [each.index for each in ending if isinstance(each, StepBlock)]
    first, last = (steps[0][0], steps[-1][-1]) if steps else (1.0, math.inf)
    # What is counted since the start is told from the first count that is there on.
    counts = (each.at_step + 1.0 for each in ending if isinstance(each, Totals))
    first = max([first, *(since for since in (next(counts, first),) if since <= last)])
    return replace(file, held=ending, chosen=ReadSteps(first=max(1.0, first)))


def _ending(file: RecordFile, most_bytes: int) -> Iterator[Content]:
    """About so much of the end of a file; where that begins in a packed part its last stretches."""
    packed = [number for number, part in enumerate(file.parts) if part.path in file.indexes]
    number = max(packed, default=-1)
    left = most_bytes - sum(part.size_bytes for part in file.parts[number + 1 :])
    if number < 0 or left <= 0:
        yield from read(file, most_bytes)
        return
    part = file.parts[number]
    firsts = file.indexes[part.path].stretches["first"]
    wanted = max(1, min(len(firsts), int(len(firsts) * left / part.size_bytes)))
    end = replace(file, parts=file.parts[number:], chosen=ReadSteps(first=firsts[-wanted]))
    yield from end.entries()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEnd:
    """Where the file of a rank ends."""

    step: int
    """Number of its last step; -1 without one."""
    at_ns: int
    """From the start of the fit to the end of that step, or to the end mark."""
    mark: EndMark | None


def end_of(file: RecordFile) -> FileEnd:
    """The end of a file, by its last lines; all of them only where these have no step.

    Raises:
        OSError: It cannot be read.
    """
    stretches = file.stretches()
    step, at_ns = stretches["last"].max(initial=-1), stretches["end_ns"].max(initial=0)
    rest = replace(file, chosen=ReadSteps(first=step + 1))
    mark = None
    for most_bytes in (EDGE_BYTES, None):
        for entry in read(rest, most_bytes):
            if isinstance(entry, StepBlock):
                step = max(step, entry.index[-1])
                at_ns = max(at_ns, (entry.start_ns + entry.wall_ns).max())
            elif isinstance(entry, EndMark):
                at_ns, mark = max(at_ns, entry.fit_ns), entry
        if step >= 0:
            break
    return FileEnd(step=int(step), at_ns=int(at_ns), mark=mark)
