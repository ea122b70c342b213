"""Record files: what one rank wrote during one attempt, streamed part by part.

A part is lines, or packed (`core.steps.packed`); of a packed one those stretches are read that are
wanted.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from trainperf.analysis.run.parts import CHUNK_BYTES, EDGE_BYTES, Parts, contents
from trainperf.core.errors import RunError
from trainperf.core.paths import AnyPath
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock, StepSchema
from trainperf.core.steps.codec import Entry, decode_entry, decode_steps
from trainperf.core.steps.packed import PackedPart
from trainperf.core.steps.packed import contents as packed_contents
from trainperf.core.steps.records import EndMark, GapRecord, RunInfo


Content = StepBlock | Entry | int
"""What a record file holds, but for its header; how many lines are damaged, and were skipped."""


STEP_BYTES = 128
"""Of a step's line, or a little more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """What one rank wrote during one attempt."""

    parts: Parts
    """As they were listed when the run was opened, without those that cannot be read."""
    rank: int
    attempt: int
    info: RunInfo
    packed: Mapping[AnyPath, PackedPart] = field(default_factory=dict)
    """What its packed parts say of themselves, in order."""
    begun: int = 0
    """Steps of earlier attempts, from which on its own are numbered."""
    first: float = 0
    last: float = math.inf
    """Numbers in it of the steps that are read, both ends included."""
    most_bytes: int | None = None
    """About how much of it is read, from its end; `None` for all."""
    held: Sequence[Content] | None = None
    """What it holds, where that is in memory; else it is read."""

    @property
    def path(self) -> AnyPath:
        """The file, or its first part."""
        return self.parts[0].path

    @property
    def is_window(self) -> bool:
        """Whether there may be steps before or after those that are read."""
        return self.first > 0 or self.last < math.inf

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
        Cumulative ones are not those of a window: what they grew by in it is.  Every step comes
        after all before it: any other line was written twice, or is damaged.

        Raises:
            OSError: A part cannot be read.
        """
        read = _in_blocks(_decoded(self, at_once), at_once)
        for content in read if self.held is None else self.held:
            if isinstance(content, StepBlock):
                inside = (content.index >= self.first) & (content.index <= self.last)
                if inside.any():
                    yield content.select(inside)
            # A gap before the first step is before step 0.
            elif not isinstance(content, GapRecord) or (
                (self.first or -1) <= content.after_step <= self.last
            ):
                yield content


def _decoded(file: RecordFile, at_once: int) -> Iterator[Content]:
    schema = StepSchema(file.info.columns, file.info.device)
    chunk_bytes = CHUNK_BYTES * at_once // BLOCK_STEPS
    pieces = contents(file.parts, file.most_bytes, chunk_bytes=chunk_bytes)
    for content in chain.from_iterable(_unpacked(file, piece) for piece in pieces):
        if not isinstance(content, list):
            yield content
            continue
        # A million steps are a million lines: they are separated by the list, not one by one.
        steps = [line for line in content if line[:1] == b"["]
        if len(steps) < len(content):
            yield from (decode_entry(line) or 1 for line in content if line[:1] != b"[")
        block, damaged = decode_steps(schema, steps)
        yield block
        if damaged:
            yield damaged


def _unpacked(
    file: RecordFile, piece: list[bytes] | AnyPath
) -> Iterator[list[bytes] | StepBlock | int]:
    """Lines as they are; of a packed part what it holds, and how many steps of it are damaged."""
    if isinstance(piece, list):
        yield piece
        return
    header = file.packed.get(piece)
    left = header.last - header.first + 1 if header else 1
    with piece.open("rb") as packed:
        try:
            for content in packed_contents(packed, file.first, file.last):
                left -= len(content) if isinstance(content, StepBlock) else 0
                yield content
        except (RunError, ValueError):
            yield max(1, left)


def _in_blocks(contents: Iterable[Content], size: int) -> Iterator[Content]:
    """Steps *size* at a time, the last may be fewer, each after all before it; the rest at once."""
    rest: StepBlock | None = None
    last = -1.0
    for content in contents:
        if not isinstance(content, StepBlock):
            yield content
            continue
        reached = np.maximum.accumulate(np.concatenate(([last], content.index)))
        rising = content.select(content.index > reached[:-1])
        last = reached[-1]
        if len(rising) < len(content):
            yield len(content) - len(rising)
        rest = rising if rest is None else StepBlock.joined([rest, rising])
        while len(rest) >= size:
            yield rest.select(slice(size))
            rest = rest.select(slice(size, None))
    if rest is not None and len(rest):
        yield rest


def held(file: RecordFile, most_bytes: int) -> RecordFile:
    """The same file, in memory.

    Args:
        file: All of it, or a window.
        most_bytes: About how much of it is held, of its end.

    Raises:
        OSError: It cannot be read.
    """
    if file.size_bytes <= most_bytes:
        return replace(file, held=list(file.entries()))
    first = max(1.0, end_of(file).step - most_bytes // STEP_BYTES)
    entries = list(replace(file, most_bytes=most_bytes, first=first).entries())
    first = next((each.index[0] for each in entries if isinstance(each, StepBlock)), first)
    return replace(file, most_bytes=most_bytes, first=max(1.0, first), held=entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEnd:
    """Where the file of a rank ends."""

    step: int
    """Number of its last step; -1 without one."""
    at_ns: int
    """From the start of the fit to the end of that step, or to the end mark."""
    mark: EndMark | None


def end_of(file: RecordFile) -> FileEnd:
    """The end of a file, by its last lines; all that is not packed where these have no step.

    Raises:
        OSError: It cannot be read.
    """
    last = max((part.last for part in file.packed.values()), default=-1)
    at_ns = max((part.end_ns for part in file.packed.values()), default=0)
    for most_bytes in (EDGE_BYTES, None):
        rest = replace(file, most_bytes=most_bytes, first=last + 1, last=math.inf)
        entries = list(rest.entries())
        steps = [entry for entry in entries if isinstance(entry, StepBlock)]
        if steps:
            break
    marks = [entry for entry in entries if isinstance(entry, EndMark)]
    ends_ns = [block.start_ns[-1] + block.wall_ns[-1] for block in steps]
    return FileEnd(
        step=int(steps[-1].index[-1] if steps else last),
        at_ns=int(max([at_ns, *ends_ns, *(mark.fit_ns for mark in marks)])),
        mark=marks[-1] if marks else None,
    )
