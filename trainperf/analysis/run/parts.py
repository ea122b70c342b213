"""Whole lines of files that are in parts and may be growing: the one reader of the run directory.

Object storage cannot append, and files of days are rotated: a file goes on in further parts, cut
anywhere, and a part that was left is packed and its lines are taken away.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from trainperf.core.places import AnyPath, ListedFile
from trainperf.core.run_directory import is_packed, packed_part, part_number


CHUNK_BYTES = 1 << 20
"""Read at once.  No valid line is as long: one that is longer must not fill the memory."""

EDGE_BYTES = 1 << 16
"""Of the beginning or the end of a file, where that is enough: longer than nearly all headers."""

Parts = Sequence[ListedFile]
"""The parts of a file in order, numbered from 0."""


def by_writer(
    content: Iterable[ListedFile], writer_of: Callable[[str], tuple[int, int] | None]
) -> dict[tuple[int, int], list[ListedFile]]:
    """Rank and attempt to the parts of their file in order; of one that is there twice the packed.

    Args:
        content: Of a directory.
        writer_of: Rank and attempt by the name of a file, if it is one of these.
    """
    files: dict[tuple[int, int], dict[int, ListedFile]] = {}
    for file in sorted(content, key=lambda file: is_packed(file.path.name)):
        writer = None if file.is_dir else writer_of(file.path.name)
        if writer is not None:
            files.setdefault(writer, {})[part_number(file.path.name)] = file
    return {writer: [parts[number] for number in sorted(parts)] for writer, parts in files.items()}


class PartReader:
    """What is in the parts of a file, each piece once, up to the last whole line.

    It goes on where it stopped when `parts` is set to what there is by then.

    Args:
        parts: What there is of it.
        most_bytes: About how much of that is read, from its end; `None` for all.
        header: Whether its first line is one that is not wanted.
    """

    def __init__(self, parts: Parts, most_bytes: int | None = None, *, header: bool = True) -> None:
        self.parts = parts
        self.number, self.offset = (0, 0) if most_bytes is None else _place(parts, most_bytes)
        self.is_whole = (self.number, self.offset) == (0, 0)
        """Whether it begins with the first line."""
        self._rest = b""
        # What is before the first end of a line is the header, or the rest of a line.
        self._skips = self.offset > 0 or (header and self.is_whole)

    def contents(self) -> Iterator[list[bytes] | AnyPath]:
        """Lines, some at a time, and packed parts, which are read as a whole, up to what there is.

        Raises:
            OSError: A part cannot be read, or was packed while it was being read.
        """
        while self.number < len(self.parts):
            path = self.parts[self.number].path
            if not is_packed(path.name):
                try:
                    yield from self._lines(path)
                except FileNotFoundError:
                    path = packed_part(path)
                    if self.offset or not path.exists():
                        raise
            packed = is_packed(path.name)
            if not packed and self.number + 1 == len(self.parts):
                return
            self.number, self.offset = self.number + 1, 0
            if packed:
                self._rest, self._skips = b"", False
                yield path

    def _lines(self, path: AnyPath) -> Iterator[list[bytes]]:
        with path.open("rb") as file:
            file.seek(self.offset)
            while chunk := file.read(CHUNK_BYTES):
                self.offset += len(chunk)
                lines = (self._rest + chunk).split(b"\n")
                self._rest = lines.pop()
                if len(self._rest) > CHUNK_BYTES:
                    self._rest = b"?"
                if self._skips and lines:
                    del lines[0]
                    self._skips = False
                if lines:
                    yield lines


def _place(parts: Parts, most_bytes: int) -> tuple[int, int]:
    """The part, and the place in it, from which on there are so many bytes.

    A packed part is read as a whole, or not at all.
    """
    for number in reversed(range(len(parts))):
        most_bytes -= parts[number].size_bytes
        if most_bytes < 0:
            packed = is_packed(parts[number].path.name)
            return (number + 1, 0) if packed else (number, -most_bytes)
    return 0, 0
