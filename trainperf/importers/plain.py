"""Logs as the readers want them: unpacked, in UTF-8, and without the colours of a terminal."""

import gzip
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from trainperf.core.errors import LogError


_GZIP = b"\x1f\x8b"
_UTF_8 = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_LOOK_BYTES = 1 << 20
"""Of the begin of a file: colours are in all of a log or in nothing of it."""


@contextmanager
def plain(files: Sequence[Path]) -> Iterator[list[Path]]:
    """The *files*, in place of those that cannot be read as they are copies that can.

    A copy has the name of its file, without `.gz`, and is there until the block is left.

    Raises:
        LogError: A packed file is damaged, or a file is given twice.
        OSError: A file cannot be read or written.
    """
    for place, file in enumerate(files):
        if file.resolve() in (other.resolve() for other in files[:place]):
            raise LogError(f"{file}: given twice: its steps would count twice")
    with TemporaryDirectory(prefix="trainperf-import-") as folder:
        places = (Path(folder, str(number)) for number, _ in enumerate(files))
        yield [_unpacked(file, place) for file, place in zip(files, places, strict=True)]


def _unpacked(file: Path, folder: Path) -> Path:
    """A file as text, which is itself or in *folder*."""
    with file.open("rb") as log:
        head = log.read(_LOOK_BYTES)
    if head.startswith(_GZIP):
        return _unpacked(_written(file, folder / "unpacked", _unpack), folder / "text")
    if head.startswith(_UTF_16):
        return _unpacked(_written(file, folder / "decoded", _decode), folder / "text")
    if head.startswith(_UTF_8) or _COLOUR.search(head):
        return _written(file, folder, _strip)
    return file


def _written(file: Path, folder: Path, write: Callable[[Path, Path], None]) -> Path:
    folder.mkdir(parents=True)
    copy = folder / file.name.removesuffix(".gz")
    write(file, copy)
    return copy


def _unpack(file: Path, copy: Path) -> None:
    try:
        with gzip.open(file) as packed, copy.open("wb") as log:
            shutil.copyfileobj(packed, log)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise LogError(f"{file}: packed, and damaged: {error}") from None


def _decode(file: Path, copy: Path) -> None:
    """Also what the `>` of a PowerShell writes."""
    with (
        file.open(encoding="utf-16", errors="replace", newline="") as packed,
        copy.open("w", encoding="utf-8", newline="") as log,
    ):
        shutil.copyfileobj(packed, log)


def _strip(file: Path, copy: Path) -> None:
    """Without colours, and without what some programs mark UTF-8 with."""
    with file.open("rb") as coloured, copy.open("wb") as log:
        for number, line in enumerate(coloured):
            log.write(_COLOUR.sub(b"", line if number else line.removeprefix(_UTF_8)))
