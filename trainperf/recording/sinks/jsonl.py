"""Sink that writes a rank's record file: whole lines, in order.

A file of days is written in parts, and a process of low priority packs those that were left.
Nothing of it is in a step's way.
"""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainperf.core import run_directory
from trainperf.core.steps.codec import Entry, encode_entry, encode_rows
from trainperf.core.steps.records import Row, RunInfo
from trainperf.recording.child_process import start_child
from trainperf.recording.rotating_file import RotatingFile
from trainperf.recording.sinks.base import Sink


_LAST_S = 10.0
"""How long the end of a fit waits for the child; what is not packed by then stays as it is."""


class JsonlSink(Sink):
    """One rank's record file.  A full disk raises once here; the guard then switches it off.

    Args:
        path: Its first part.
        most: Bytes of a part before the next begins.
    """

    name = "run directory"

    def __init__(self, path: Path, most: int = run_directory.PART_BYTES) -> None:
        self.path = path
        self._most = most
        self._packer: subprocess.Popen[bytes] | None = None

    def begin(self, info: RunInfo) -> None:
        """Create the file, which must not exist, and write line 1: a killed rank leaves it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = RotatingFile(self.path, self._most, self._pack)
        self._file.write(encode_entry(info))

    def rows(self, rows: Sequence[Row]) -> None:
        """One line per step."""
        self._file.write(encode_rows(rows))

    def entries(self, entries: Sequence[Entry]) -> None:
        """One line each."""
        self._file.write(b"".join([encode_entry(entry) for entry in entries]))

    def close(self) -> None:
        """Close the file; one that could not be made is a fault already."""
        self._file.close()
        if self._packer is not None:
            with suppress(subprocess.TimeoutExpired):
                self._packer.wait(_LAST_S)

    def _pack(self, _left: Path) -> None:
        if self._packer is None or self._packer.poll() is not None:
            with suppress(OSError):  # it stays as it is, until the next time
                self._packer = start_child("trainperf.core.steps.packing", str(self.path.resolve()))
