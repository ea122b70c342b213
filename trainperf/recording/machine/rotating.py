"""File of samples that goes on in another part when it has got its size.

The part that was left is packed at once, by the process that samples: nobody waits for it, and its
next sample is a moment later.
"""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from trainperf.core.run_directory import drafted, packed_part, record_part


class RotatingFile:
    """Lines that are appended, each on the disk at once.

    Args:
        first: The first part; what is there already is gone on with.
        most: Bytes of a part before the next begins; 0 for any number.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, first: Path, most: int) -> None:
        self._first, self._most = first, most
        self._part = 0
        self._file = FileIO(first, "ab")

    def write(self, lines: bytes) -> None:
        """Append whole lines.

        Raises:
            OSError: They cannot be written.
        """
        if self._most and self._file.tell() and self._file.tell() + len(lines) > self._most:
            self._rotate()
        self._file.write(lines)

    def close(self) -> None:
        """Close the part that is written to; it stays as it is."""
        self._file.close()

    def _rotate(self) -> None:
        left = Path(self._file.name)
        self._part += 1
        following = FileIO(self._first.with_name(record_part(self._first.name, self._part)), "ab")
        self._file.close()
        self._file = following
        with suppress(OSError):  # the disk is full: it stays as it is
            _pack(left)


@contextmanager
def rotating(first: Path, most: int) -> Iterator[RotatingFile]:
    """Such a file, closed at the end.

    Raises:
        OSError: It cannot be written.
    """
    file = RotatingFile(first, most)
    try:
        yield file
    finally:
        file.close()


def _pack(part: Path) -> None:
    """Have a packed part instead; at any moment one of both is whole."""
    with drafted(Path(str(packed_part(part)))) as draft:
        draft.write_bytes(gzip.compress(part.read_bytes(), mtime=0))
    part.unlink()
