"""Tails of files that are written to: the lines that were appended since the last look.

A record file goes on in further parts, and a part that was left is packed and taken away: what of
it was not read by then is read from the packed one.
"""

from collections.abc import Iterator, Mapping, Sequence

from trainperf.analysis.run.record_file import Damaged, decoded
from trainperf.core.errors import RunError
from trainperf.core.places import AnyPath, ListedFile
from trainperf.core.run_directory import is_packed, packed_part, part_number
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock, StepSchema
from trainperf.core.steps.codec import Entry, decode_entry
from trainperf.core.steps.records import RunInfo, Totals
from trainperf.core.steps.segment import read_index


Parts = Mapping[int, ListedFile]
"""The parts of a file as they were listed, by number."""

CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 16 << 20
"""As in `trainperf.analysis.run.record_file`: a longer one is damage."""

_PACKED_BY = 5
"""Times as long as a packed part are the lines in it."""


def by_number(parts: Sequence[ListedFile]) -> Parts:
    """The parts of one file."""
    return {part_number(part.path.name): part for part in parts}


class LineTail:
    """Whole lines of a file of parts, each read once.

    Args:
        parts: What there is of it.
        most_bytes: How much of that is read, from its end; lines before are skipped.
    """

    def __init__(self, parts: Parts, most_bytes: int) -> None:
        self.part, self._offset = _beginning(parts, most_bytes)
        self.is_whole = (self.part, self._offset) == (0, 0)
        """Whether it begins with the first line."""
        self.last_part = self.part
        """Of which part the last content was."""
        self._in_line = self._offset > 0

    def replaced(self, parts: Parts) -> bool:
        """Whether the file is another one than before: shorter, or its part is gone."""
        here = parts.get(self.part)
        if here is None:
            return bool(parts) and max(parts) >= self.part
        return not is_packed(here.path.name) and here.size_bytes < self._offset

    def read(self, parts: Parts) -> list[bytes] | AnyPath | None:
        """The next lines, or a packed part to read as a whole; `None` at the end for now.

        Raises:
            OSError: A part cannot be read.
        """
        while (here := parts.get(self.part)) is not None:
            self.last_part = self.part
            if is_packed(here.path.name):
                self._next_part()
                return here.path
            ends = self.part + 1 in parts
            if here.size_bytes > self._offset or ends:
                try:
                    lines = self._lines(here.path)
                except FileNotFoundError:
                    self._next_part()
                    return packed_part(here.path)
                if lines:
                    return lines
            if not ends:
                return None
            self._next_part()
        return None

    def _next_part(self) -> None:
        self.part, self._offset, self._in_line = self.part + 1, 0, False

    def _lines(self, path: AnyPath) -> list[bytes]:
        content = b""
        with path.open("rb") as file:
            file.seek(self._offset)
            while chunk := file.read(CHUNK_BYTES):
                content += chunk
                if b"\n" in chunk or len(content) > _LONGEST_LINE:
                    break
        if len(content) > _LONGEST_LINE and b"\n" not in content:
            content = b"?" * (len(content) - 1) + b"\n"
        whole, end, _ = content.rpartition(b"\n")
        self._offset += len(whole) + len(end)
        lines = whole.split(b"\n") if end else []
        if self._in_line and lines:
            del lines[0]
            self._in_line = False
        return lines


def _beginning(parts: Parts, most_bytes: int) -> tuple[int, int]:
    """The part and the place in it from which on there are about so many bytes."""
    for number in sorted(parts, reverse=True):
        part = parts[number]
        packed = is_packed(part.path.name)
        size_bytes = part.size_bytes * (_PACKED_BY if packed else 1)
        if size_bytes > most_bytes:
            # A packed part is read as a whole, or not at all; the last one is never packed.
            return (number + 1, 0) if packed else (number, size_bytes - most_bytes)
        most_bytes -= size_bytes
    return min(parts), 0


class RecordTail:
    """Entries of one rank's record file, each once.

    Args:
        info: Its header.
        parts: What there is of it.
        most_bytes: How much of that is read, from its end.
    """

    def __init__(self, info: RunInfo, parts: Parts, most_bytes: int) -> None:
        self.lines = LineTail(parts, most_bytes)
        self._schema = StepSchema(info.columns, info.device)
        self._header = self.lines.is_whole
        self._part, self._others = self.lines.part, 0
        """The part, and its entries so far that are neither steps nor totals."""

    def read(self, parts: Parts) -> Iterator[StepBlock | Entry | Damaged] | None:
        """What comes next; `None` at the end for now.

        Steps may come that were there already.

        Raises:
            OSError: A part cannot be read.
        """
        content = self.lines.read(parts)
        if content is None:
            return None
        if self.lines.last_part != self._part:
            self._part, self._others = self.lines.last_part, 0
        return self._decoded(content) if isinstance(content, list) else self._packed(content)

    def _decoded(self, lines: list[bytes]) -> Iterator[StepBlock | Entry | Damaged]:
        lines = lines[1:] if self._header else lines
        self._header = False
        yield from self._entries(line for line in lines if line[:1] != b"[")
        steps = [line for line in lines if line[:1] == b"["]
        for begin in range(0, len(steps), BLOCK_STEPS):
            yield from decoded(self._schema, steps[begin : begin + BLOCK_STEPS])

    def _entries(self, lines: Iterator[bytes]) -> Iterator[Entry | Damaged]:
        for line in lines:
            entry = decode_entry(line)
            self._others += not isinstance(entry, Totals)
            yield entry or Damaged(1)

    def _packed(self, part: AnyPath) -> Iterator[StepBlock | Entry | Damaged]:
        """A packed part: its steps, and those other entries that were not read as lines."""
        read, self._others, self._header = self._others, 0, False
        with part.open("rb") as file:
            try:
                index = read_index(file)
                for entry in map(decode_entry, index.others(file)):
                    if read and not isinstance(entry, Totals):
                        read -= 1
                    else:
                        yield entry or Damaged(1)
                yield from index.blocks(file, index.stretches)
            except (RunError, ValueError):
                yield Damaged(1)
