"""Mirror of a run directory behind a URL: what is new is uploaded, in objects of bounded size.

Object storage cannot append.  A record file is cut at the ends of lines into parts of at most
`PART_BYTES`; only the last one is still written to, and uploaded again whole when it has grown.
A part that is packed by now is uploaded so, and its lines are removed.  Any other file is uploaded
whole when it has changed.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainperf.core.places import RemotePath
from trainperf.core.run_directory import (
    CAPTURE_REQUEST,
    PACKED_SUFFIX,
    CaptureName,
    is_packed,
    machine_of,
    packed_part,
    part_number,
    rank_and_attempt,
    record_part,
)


PART_BYTES = 4 << 20
"""Small enough to be uploaded again and again, large enough for a day in some forty parts."""

_PART = re.compile(r"\.part\d+(?=\.jsonl$)")
_TB_COPY = re.compile(r"rank_(\d{1,6})\.pt\.trace\.json\.gz")


@dataclass(slots=True)
class _Parts:
    """How far a record file has been uploaded."""

    number: int = 0
    """Of the last part."""
    begins: int = 0
    """Where it begins in the file."""
    sent: int = 0
    """Bytes of the file that are uploaded."""


class Mirror:
    """One run directory, and the URL that it is uploaded to.

    Args:
        run: The directory; nothing in it is ever changed.
        url: Where it goes.
        rank: Whose files are uploaded, and with rank 0 those of no rank; `None` uploads all.
    """

    def __init__(self, run: Path, url: RemotePath, rank: int | None = None) -> None:
        self._run, self._url, self._rank = run, url, rank
        self._records: dict[str, _Parts] = {}
        self._sent: dict[str, tuple[int, int]] = {}

    def upload(self) -> None:
        """Upload all that is new; what was uploaded is not uploaded again after an error.

        Raises:
            OSError: A file cannot be read, or storage not be reached.
            ConfigError: The package for that storage is not installed.
        """
        for below, file in self._files():
            self._upload(below, file)

    def pending_bytes(self) -> int:
        """What is new; all of a file that has changed."""
        pending = 0
        for below, file in self._files():
            with suppress(FileNotFoundError):
                stamp = _stamp(file)
                if _is_appended(below):
                    pending += stamp[0] - self._records.get(below, _Parts()).sent
                elif self._sent.get(below) != stamp:
                    pending += stamp[0]
        return pending

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Whole files by their path below the run: records first, traces last."""
        files = []
        for folder, _, names in os.walk(self._run):
            for name in names:
                path = Path(folder) / name
                below = path.relative_to(self._run).as_posix()
                if not name.startswith(".") and below != CAPTURE_REQUEST:
                    files.append((below, path))
        files.sort(key=lambda file: (not _is_record(file[0]), "/" in file[0], file[0]))
        for below, path in files:
            if self._rank is None or _rank(path.name) == self._rank:
                yield below, path

    def _upload(self, below: str, file: Path) -> None:
        try:
            if _is_appended(below):
                if not packed_part(file).exists():
                    self._upload_records(below, file)
                return
            stamp = _stamp(file)
            if self._sent.get(below) != stamp:
                (self._url / below).put(file)
                if is_packed(below):
                    self._remove_lines(below)
                self._sent[below] = stamp
        except FileNotFoundError:
            if file.exists():  # otherwise its writer has taken it away
                raise

    def _remove_lines(self, packed: str) -> None:
        """Take away what a packed part holds now; a reader that finds both takes that."""
        with suppress(FileNotFoundError):
            (self._url / f"{packed.removesuffix(PACKED_SUFFIX)}.jsonl").unlink()

    def _upload_records(self, name: str, file: Path) -> None:
        parts = self._records.setdefault(name, _Parts())
        whole, before = _PART.sub("", name), part_number(name)
        size = file.stat().st_size
        with file.open("rb") as records:
            while parts.sent < size:
                records.seek(parts.begins)
                content = records.read(PART_BYTES + 1)
                full = len(content) > PART_BYTES
                if full:
                    # A line that is longer than a part is damage; it is cut.
                    content = content[: content.rfind(b"\n", 0, PART_BYTES) + 1 or PART_BYTES]
                (self._url / record_part(whole, before + parts.number)).write_bytes(content)
                parts.sent = parts.begins + len(content)
                if full:
                    parts.number, parts.begins = parts.number + 1, parts.sent


def _is_record(below: str) -> bool:
    """Whether it only grows."""
    return (rank_and_attempt(below) or machine_of(below)) is not None


def _is_appended(below: str) -> bool:
    return _is_record(below) and not is_packed(below)


def _rank(name: str) -> int:
    """Whose file has this name; what is of all ranks is written by the first."""
    writer = rank_and_attempt(name) or machine_of(name)
    if writer is not None:
        return writer[0]
    if copy := _TB_COPY.fullmatch(name):
        return int(copy[1])
    capture = CaptureName.parse(name)
    return 0 if capture is None or capture.rank is None else capture.rank


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
