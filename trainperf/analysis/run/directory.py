"""Run directories: finding one, and streaming its record files.

A run is a directory, or a folder in object storage, with one record file per rank, and further
ones for each attempt after a restart.  A file may be in several parts, packed or not, and
elsewhere, where a manifest names it.  Files are streamed: a run of any length is read in constant
memory, and of a run of days only as many stretches as its statistics need.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO

from trainperf.analysis.run.manifest import manifest_files
from trainperf.analysis.run.record_file import RecordFile, whole_lines
from trainperf.analysis.run.window import MOST_ROWS, thinned, within
from trainperf.core.artifacts.manifest import Manifest
from trainperf.core.errors import RunError
from trainperf.core.places import AnyPath, ListedFile, first_bytes, listed, path_of
from trainperf.core.run_directory import (
    NAME,
    RECORD_FILES,
    is_packed,
    part_number,
    rank_and_attempt,
)
from trainperf.core.spool import not_uploaded, url_of
from trainperf.core.steps.codec import decode_info
from trainperf.core.steps.records import RunInfo
from trainperf.core.steps.segment import SegmentIndex, read_index
from trainperf.core.window import RunWindow


_LEVELS = 3
"""Folders below a directory in which a run is searched for: e.g. in `lightning_logs/version_0`."""

_HEADER_BYTES = 1 << 16
"""Longer than nearly all headers."""


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
            run = _open(path_of(path))
            return run if window is None else run.within(window)
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
        stem, _, number = directory.name.rpartition("-")
        later = stem == NAME and number.isdigit()
        return f"{directory.parent.name}/{directory.name}" if later else directory.name

    @property
    def address(self) -> str:
        """Where people find it: of a spool, the URL that it is uploaded to."""
        return str(url_of(self.path) or self.path)

    def last_write_s(self) -> float:
        """When the latest attempt was last written to, in seconds since 1970."""
        return max(file.modified_s for file in self.attempts[-1])


def _open(path: AnyPath) -> Run:
    if rank_and_attempt(path.name) and path.is_file():
        path = path.parent
    try:
        content = listed(path)
    except FileNotFoundError:
        raise RunError(f"{path}: no such file or directory") from None
    except NotADirectoryError:
        raise RunError(
            f"{path}: not a run directory; give the one that holds steps-rank0.jsonl"
        ) from None
    if _is_run(content):
        return _opened(path, content, ())
    below = dict(_runs_below(content))
    if not below:
        raise RunError(f"{path}: not a run directory: no {RECORD_FILES} in or below it")
    newest = max(below, key=lambda run: _began(run, below[run]))
    notice = f"{len(below)} runs in {path}: reading the newest, {newest.relative_to(path)}"  # type: ignore[arg-type]  # both are of one kind
    return _opened(newest, below[newest], (notice,) if len(below) > 1 else ())


def _is_run(content: Sequence[ListedFile]) -> bool:
    return any(
        not file.is_dir and (rank_and_attempt(file.path.name) or file.path.name == Manifest.file)
        for file in content
    )


def _runs_below(content: Sequence[ListedFile]) -> Iterator[tuple[AnyPath, list[ListedFile]]]:
    """Runs in the folders of a directory, and their contents."""
    level = content
    for _ in range(_LEVELS):
        inside: list[ListedFile] = []
        for folder in (file.path for file in level if file.is_dir):
            with suppress(PermissionError, FileNotFoundError):
                files = listed(folder)
                if folder.name.startswith(NAME) and _is_run(files):
                    yield folder, files
                inside += files
        level = inside


def _began(directory: AnyPath, content: Sequence[ListedFile]) -> tuple[str, float]:
    """Start of a run by its own clock: copying a directory changes the files' times."""
    records, _ = record_files(directory, content)
    headers = _headers([parts[0] for parts in records.values()])
    started = [info.started_at for info in headers if isinstance(info, RunInfo)]
    return max(started, default=""), max(file.modified_s for file in content)


RecordParts = dict[tuple[int, int], list[ListedFile]]
"""Rank and attempt to the parts of the record file."""


def record_files(
    directory: AnyPath, content: Sequence[ListedFile]
) -> tuple[RecordParts, list[str]]:
    """The record files of a run, and what is wrong with others."""
    elsewhere = None
    if any(file.path.name == Manifest.file for file in content):
        elsewhere = manifest_files(directory)
    files, problems = (content, []) if elsewhere is None else elsewhere
    records: RecordParts = {}
    for file in files:
        writer = None if file.is_dir else rank_and_attempt(file.path.name)
        if writer is not None:
            records.setdefault(writer, []).append(file)
    for writer, several in records.items():
        parts = _each_once(several)
        records[writer] = parts
        whole = [file for number, file in enumerate(parts) if part_number(file.path.name) == number]
        if len(whole) < len(parts):
            problems.append(
                f"{parts[len(whole)].path}: the part before it is missing, nothing from there on "
                "is read"
            )
            records[writer] = whole
    return {writer: parts for writer, parts in records.items() if parts}, problems


def _each_once(files: Iterable[ListedFile]) -> list[ListedFile]:
    """The parts of a record file in order; of one that is there twice the packed one."""
    parts: dict[int, ListedFile] = {}
    for file in sorted(files, key=lambda file: is_packed(file.path.name)):
        parts[part_number(file.path.name)] = file
    return [parts[number] for number in sorted(parts)]


def _opened(directory: AnyPath, content: Sequence[ListedFile], warnings: tuple[str, ...]) -> Run:
    files: list[RecordFile] = []
    records, problems = record_files(directory, content)
    headers = _headers([parts[0] for parts in records.values()])
    for ((rank, attempt), parts), header in zip(records.items(), headers, strict=True):
        if isinstance(header, str):
            problems.append(header)
            continue
        file = RecordFile(
            path=parts[0].path,
            rank=rank,
            attempt=attempt,
            info=header,
            later_parts=tuple(part.path for part in parts[1:]),
            size_bytes=sum(part.size_bytes for part in parts),
            modified_s=max(part.modified_s for part in parts),
        )
        files.append(file)
    files, unreadable = _indexed(files)
    problems += unreadable
    if not files:
        raise RunError(problems[0])
    skipped = [f"skipped: {problem}" for problem in problems]
    if only_here := not_uploaded(directory):
        skipped.append(only_here)
    attempts = thinned(_by_attempt(files), MOST_ROWS)
    return Run(path=directory, attempts=attempts, warnings=(*warnings, *skipped))


def _indexed(files: Sequence[RecordFile]) -> tuple[list[RecordFile], list[str]]:
    """The same with the indexes of their packed parts, and what is wrong with others.

    Without those whose first part is packed and cannot be read: nothing of them is left.
    """
    packed = [
        part for file in files for part in (file.path, *file.later_parts) if is_packed(part.name)
    ]
    indexes: dict[AnyPath, SegmentIndex] = {}
    problems: list[str] = []
    for part, content in zip(packed, first_bytes(packed, _HEADER_BYTES), strict=True):
        index = _index(part, content)
        if isinstance(index, str):
            problems.append(index)
        else:
            indexes[part] = index
    begun = [file for file in files if file.path in indexes or not is_packed(file.path.name)]
    return [_whole(file, indexes) for file in begun], problems


def _index(part: AnyPath, content: bytes | OSError) -> SegmentIndex | str:
    """The index of a packed part, or what is wrong with it."""
    if isinstance(content, OSError):
        return f"{part}: {content.strerror or content}"
    with suppress(RunError):
        return read_index(BytesIO(content))
    try:
        with part.open("rb") as file:  # its index is longer
            return read_index(file)
    except (RunError, OSError) as error:
        return f"{part}: {error}"


def _whole(file: RecordFile, indexes: dict[AnyPath, SegmentIndex]) -> RecordFile:
    """A file with its indexes, up to the first packed part that cannot be read."""
    parts = (file.path, *file.later_parts)
    if not any(is_packed(part.name) for part in parts):
        return file
    readable = [not is_packed(part.name) or part in indexes for part in parts]
    end = readable.index(False) if False in readable else len(parts)
    own = {part: indexes[part] for part in parts[:end] if part in indexes}
    return replace(file, later_parts=parts[1 : max(1, end)], indexes=own)


def _by_attempt(files: Iterable[RecordFile]) -> tuple[tuple[RecordFile, ...], ...]:
    attempts: dict[int, list[RecordFile]] = {}
    for file in sorted(files, key=lambda file: (file.attempt, file.rank)):
        attempts.setdefault(file.attempt, []).append(file)
    return tuple(tuple(files) for files in attempts.values())


def _headers(files: Sequence[ListedFile]) -> list[RunInfo | str]:
    """The header of each record file, or what is wrong with it."""
    beginnings = first_bytes([file.path for file in files], _HEADER_BYTES)
    return [_header(file.path, content) for file, content in zip(files, beginnings, strict=True)]


def _header(path: AnyPath, content: bytes | OSError) -> RunInfo | str:
    if isinstance(content, OSError):
        return f"{path}: {content.strerror or content}"
    first, end, _ = content.partition(b"\n")
    if not end and len(content) == _HEADER_BYTES:
        lines = next(whole_lines((path,)), None)
        first, end = (lines[0], b"\n") if lines else (b"", b"")
    if not end:
        return f"{path}: empty, or cut short before the end of its first line"
    try:
        return decode_info(first)
    except RunError as error:
        return f"{path}: {error}"
