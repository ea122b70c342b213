"""Sink that writes a rank's record file: whole lines, in order, flushed after every group."""

from collections.abc import Sequence
from io import BufferedWriter
from pathlib import Path

from trainperf.core import run_directory
from trainperf.core.steps.codec import Entry, encode_entry, encode_rows
from trainperf.core.steps.records import Row, RunInfo
from trainperf.recording.sinks.base import Outputs, Sink


def sink_for(outputs: Outputs) -> Sink | None:
    """The record file of this rank, where there is a run directory."""
    if outputs.run is None:
        return None
    attempt = run_directory.attempt()
    return JsonlSink(run_directory.record_file(outputs.run, outputs.rank, attempt))


class JsonlSink(Sink):
    """One rank's record file.  A full disk raises once here; the guard then switches it off."""

    name = "run directory"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BufferedWriter | None = None

    def begin(self, info: RunInfo) -> None:
        """Create the file, which must not exist, and write line 1."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("xb")
        self._write(encode_entry(info))

    def rows(self, rows: Sequence[Row]) -> None:
        """One line per step."""
        self._write(encode_rows(rows))

    def entries(self, entries: Sequence[Entry]) -> None:
        """One line each."""
        self._write(b"".join([encode_entry(entry) for entry in entries]))

    def flush(self) -> None:
        """Hand the lines to the operating system: a killed process loses none of them."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, data: bytes) -> None:
        if self._file is not None:
            self._file.write(data)
