"""Whole lines of files that are in parts and may be growing: the one reader of the run directory.

Object storage cannot append, and files of days are rotated: a file goes on in further parts, cut
anywhere, and a part that was left is packed and its lines are taken away.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from trainperf.core.paths import AnyPath, ListedFile, is_replaced
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


def contents(
    parts: Parts,
    most_bytes: int | None = None,
    *,
    header: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[list[bytes] | AnyPath]:
    """What is in the parts of a file, up to the last whole line.

    Lines come some at a time; packed parts are read as a whole, by whoever takes them.

    Args:
        parts: What there is of it.
        most_bytes: About how much of that is read, from its end; `None` for all.
        header: Whether its first line is one that is not wanted.
        chunk_bytes: About how much of lines comes at a time.

    Raises:
        OSError: A part cannot be read.
    """
    number, offset = (0, 0) if most_bytes is None else _place(parts, most_bytes)
    # What is before the first end of a line is the header, or the rest of a line.
    rest, skips = b"", offset > 0 or (header and number == 0)
    for chunk in _chunks(parts[number:], offset, chunk_bytes):
        if not isinstance(chunk, bytes):
            rest, skips = b"", False
            yield chunk
            continue
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > CHUNK_BYTES:
            rest = b"?"
        if skips and lines:
            del lines[0]
            skips = False
        yield lines


def _chunks(parts: Parts, offset: int, chunk_bytes: int) -> Iterator[bytes | AnyPath]:
    """The bytes of parts, the first one from a place on, and packed parts."""
    for part in parts:
        if is_packed(part.path.name):
            yield part.path
        else:
            try:
                yield from _read(part.path, offset, chunk_bytes)
            except FileNotFoundError:  # packed meanwhile
                if not packed_part(part.path).exists():
                    raise
                yield packed_part(part.path)
        offset = 0


def _read(path: AnyPath, offset: int, chunk_bytes: int) -> Iterator[bytes]:
    """From a place on; an object that is written anew meanwhile goes on where the older one did."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(chunk_bytes):
                offset += len(chunk)
                yield chunk
    except OSError as error:
        if not is_replaced(error):
            raise
        yield from _read(path, offset, chunk_bytes)


def _place(parts: Parts, most_bytes: int) -> tuple[int, int]:
    """The part, and the place in it, from which on there are so many bytes; a packed one whole."""
    for number in reversed(range(len(parts))):
        most_bytes -= parts[number].size_bytes
        if most_bytes < 0:
            return number, 0 if is_packed(parts[number].path.name) else -most_bytes
    return 0, 0
