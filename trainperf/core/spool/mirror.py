"""Mirror of a run directory behind a URL: a file that has changed is uploaded, whole.

Object storage cannot append, but record files are written in parts, of which only the last one
still grows.  A part that is packed by now is uploaded so, and its lines are removed.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainperf.core.places import RemotePath
from trainperf.core.run_directory import (
    CAPTURE_REQUEST,
    PACKED_SUFFIX,
    is_packed,
    machine_of,
    packed_part,
    rank_and_attempt,
)


_OF_RANK = re.compile(r"(?:steps-|machine-)?rank_?(\d{1,6})[-.]")


class Mirror:
    """One run directory, and the URL that it is uploaded to.

    Args:
        run: The directory; nothing in it is ever changed.
        url: Where it goes.
        rank: Whose files are uploaded, and with rank 0 those of no rank; `None` uploads all.
    """

    def __init__(self, run: Path, url: RemotePath, rank: int | None = None) -> None:
        self._run, self._url, self._rank = run, url, rank
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
                pending += stamp[0] if self._sent.get(below) != stamp else 0
        return pending

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Whole files by their path below the run: records first, traces last."""
        files = []
        for folder, _, names in os.walk(self._run):
            for name in names:
                path = Path(folder) / name
                below = path.relative_to(self._run).as_posix()
                own = self._rank is None or _rank(name) == self._rank
                if own and not name.startswith(".") and below != CAPTURE_REQUEST:
                    files.append((below, path))
        files.sort(key=lambda file: (not _is_record(file[0]), "/" in file[0], file[0]))
        for below, path in files:
            if is_packed(below) or not _is_record(below) or not packed_part(path).exists():
                yield below, path

    def _upload(self, below: str, file: Path) -> None:
        try:
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


def _is_record(below: str) -> bool:
    """Whether it only grows."""
    return (rank_and_attempt(below) or machine_of(below)) is not None


def _rank(name: str) -> int:
    """Whose file has this name; what is of all ranks is written by the first."""
    writer = _OF_RANK.match(name)
    return int(writer[1]) if writer else 0


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
