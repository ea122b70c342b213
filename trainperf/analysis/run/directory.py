"""Run directories: finding one, and streaming its record files.

A run is a directory, or a folder in object storage, with one record file per rank, and further
ones for each attempt after a restart.  A file may be in several parts, packed or not.  Files are
streamed: a run of any length is read in constant memory.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import groupby, takewhile
from typing import IO

from trainperf.analysis.run.parts import CHUNK_BYTES, EDGE_BYTES, by_writer
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.window import numbered_on, within
from trainperf.core.errors import RunError
from trainperf.core.paths import (
    AnyPath,
    ListedFile,
    listed,
    path_of,
    prefetched,
    reread,
    storage_errors,
)
from trainperf.core.run_directory import (
    NAME,
    RECORD_FILES,
    is_packed,
    part_number,
    rank_and_attempt,
)
from trainperf.core.spool import not_uploaded, url_of
from trainperf.core.steps.codec import decode_info
from trainperf.core.steps.packed import PackedPart, read_header
from trainperf.core.steps.records import RunInfo
from trainperf.core.window import RunWindow


LEVELS = 3
"""Folders between a run and where people look for it: e.g. `lightning_logs/version_0`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run directory: who wrote what.  `trainperf.analysis.run.replay` reads the steps."""

    path: AnyPath
    attempts: tuple[tuple[RecordFile, ...], ...]
    """Record files in the order of the attempts, each in the order of ranks."""
    warnings: tuple[str, ...] = ()
    """What had to be chosen or skipped to open it."""
    window: str = ""
    """Of which of its steps are read, for people; empty for all."""

    @classmethod
    def open(cls, path: AnyPath | str, window: RunWindow | None = None) -> "Run":
        """Find a run at or below *path* and read its headers; `RunError` says why it cannot.

        Of a *window* only its steps are read.
        """
        try:
            with storage_errors():
                run = _open(path_of(path))
                return run if window is None else run.within(window)
        except FileNotFoundError:
            raise RunError(f"{path}: no such file or directory") from None
        except NotADirectoryError:
            raise RunError(
                f"{path}: not a run directory; give the one that holds steps-rank0.jsonl "
                "(of traces: trainperf trace)"
            ) from None
        except OSError as error:
            raise RunError(f"{path}: {error.strerror or error}") from None

    def within(self, window: RunWindow) -> "Run":
        """The same run, of which only the steps in a window are read.

        Raises:
            RunError: There is none in it.
        """
        return replace(self, attempts=within(self.attempts, window), window=window.text)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that left a readable file in any attempt."""
        return tuple(sorted({file.rank for files in self.attempts for file in files}))

    @property
    def info(self) -> RunInfo:
        """Header of the lowest rank's latest attempt."""
        return self.attempts[-1][0].info

    @property
    def name(self) -> str:
        """Name for people: the directory, or the one above a plain `trainperf`.

        A later run of the same place has both, e.g. `gpt2/trainperf-1`.
        """
        directory = self.path.resolve()
        if directory.name == NAME:
            return directory.parent.name
        later = re.fullmatch(rf"{NAME}-\d+", directory.name)
        return f"{directory.parent.name}/{directory.name}" if later else directory.name

    @property
    def address(self) -> str:
        """Where people find it: of a spool, the URL that it is uploaded to."""
        return str(url_of(self.path) or self.path)

    def last_write_s(self) -> float:
        """When the latest attempt was last written to, in seconds since 1970."""
        return max(file.modified_s for file in self.attempts[-1])


def _open(path: AnyPath) -> Run:
    if rank_and_attempt(path.name):
        path = path.parent
    content = listed(path)
    if _is_run(content):
        return _opened(path, content)
    below = dict(_runs_below(content))
    if not below:
        raise RunError(f"{path}: not a run directory: no {RECORD_FILES} in or below it")
    newest = max(below, key=lambda run: _began(below[run]))
    run = _opened(newest, below[newest])
    if len(below) == 1:
        return run
    notice = f"{len(below)} runs in {path}: reading the newest, {newest.relative_to(path)}"
    return replace(run, warnings=(notice, *run.warnings))


def _is_run(content: Sequence[ListedFile]) -> bool:
    return any(not file.is_dir and rank_and_attempt(file.path.name) for file in content)


def _runs_below(
    content: Sequence[ListedFile], levels: int = LEVELS
) -> Iterator[tuple[AnyPath, list[ListedFile]]]:
    """Runs in the folders of a directory, and their contents."""
    for folder in (file.path for file in content if file.is_dir and levels):
        with suppress(PermissionError, FileNotFoundError):
            files = listed(folder)
            if folder.name.startswith(NAME) and _is_run(files):
                yield folder, files
            yield from _runs_below(files, levels - 1)


def _began(content: Sequence[ListedFile]) -> tuple[str, float]:
    """Start of a run by its own clock: copying a directory changes the files' times."""
    files, _ = _readable(content, most_parts=1)
    started = (file.info.started_at for file in files)
    return max(started, default=""), max(file.modified_s for file in content)


_Header = tuple[RunInfo, PackedPart | None]
"""What the first lines of a part say; the second of a packed one alone."""


def _opened(directory: AnyPath, content: Sequence[ListedFile]) -> Run:
    files, problems = _readable(content)
    if not files:
        raise RunError(problems[0])
    warnings = [f"skipped: {problem}" for problem in problems]
    if only_here := not_uploaded(directory):
        warnings.append(only_here)
    files.sort(key=lambda file: (file.attempt, file.rank))
    attempts = tuple(tuple(of) for _, of in groupby(files, lambda file: file.attempt))
    return Run(path=directory, attempts=numbered_on(attempts), warnings=tuple(warnings))


def _readable(
    content: Sequence[ListedFile], most_parts: int | None = None
) -> tuple[list[RecordFile], list[str]]:
    """Record files up to the first part that is missing or cannot be read, and what is wrong."""
    problems: list[str] = []
    records: dict[tuple[int, int], list[ListedFile]] = {}
    for writer, parts in sorted(by_writer(content, rank_and_attempt).items()):
        there = [file for number, file in enumerate(parts) if part_number(file.path.name) == number]
        if len(there) < len(parts):
            problems.append(
                f"{parts[len(there)].path}: the part before it is missing, nothing from there on "
                "is read"
            )
        if there:
            records[writer] = there[:most_parts]
    paths = [
        part.path
        for parts in records.values()
        for part in parts
        if part is parts[0] or is_packed(part.path.name)
    ]
    read = dict(zip(paths, map(_read, paths, prefetched(paths, EDGE_BYTES)), strict=True))
    files: list[RecordFile] = []
    for (rank, attempt), parts in records.items():
        whole = tuple(takewhile(lambda part: not isinstance(read.get(part.path), str), parts))
        headers = [(part.path, read[part.path][1]) for part in whole if part.path in read]
        packed = {path: part for path, part in headers if isinstance(part, PackedPart)}
        header = read[parts[0].path]
        if not isinstance(header, str):
            files.append(
                RecordFile(parts=whole, rank=rank, attempt=attempt, info=header[0], packed=packed)
            )
    return files, problems + [each for each in read.values() if isinstance(each, str)]


def _read(part: AnyPath, beginning: bytes | Exception | None) -> _Header | str:
    """The first lines of a packed part, the header of another; or what is wrong with it."""
    read = read_header if is_packed(part.name) else _header
    try:
        if isinstance(beginning, bytes):
            with suppress(RunError):
                return read(BytesIO(beginning))
        return read(BytesIO(reread(partial(_beginning, part))))  # it may be longer
    except (OSError, RunError) as error:
        return f"{part}: {getattr(error, 'strerror', None) or error}"


def _beginning(part: AnyPath) -> bytes:
    with part.open("rb") as file:
        return file.read(CHUNK_BYTES)


def _header(file: IO[bytes]) -> _Header:
    line = file.readline()
    if not line.endswith(b"\n"):
        raise RunError("empty, or cut short before the end of its first line")
    return decode_info(line), None
