"""File of lines that goes on in another part when it has got its size."""

from collections.abc import Callable
from io import BufferedWriter
from pathlib import Path

from trainperf.core.run_directory import record_part


class RotatingFile:
    """Lines that are appended; a part that was left stays as it is, and may be packed.

    Args:
        first: The first part, which must not exist.
        most: Bytes of a part before the next begins.
        pack: Is given each part that was left.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, first: Path, most: int, pack: Callable[[Path], None]) -> None:
        self._first, self._most, self._pack = first, most, pack
        self._part = self._bytes = 0
        self._file: BufferedWriter = first.open("xb")

    def write(self, lines: bytes) -> None:
        """Append whole lines and hand them to the operating system: who is killed loses none.

        Raises:
            OSError: They cannot be written.
        """
        if self._bytes and self._bytes + len(lines) > self._most:
            left = Path(self._file.name)
            self.close()
            self._part, self._bytes = self._part + 1, 0
            self._file = left.with_name(record_part(self._first.name, self._part)).open("xb")
            self._pack(left)
        self._bytes += self._file.write(lines)
        self._file.flush()

    def close(self) -> None:
        """Close the part that is written to; it stays as it is."""
        self._file.close()
