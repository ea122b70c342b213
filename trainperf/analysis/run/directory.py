"""Run directories on disk: finding one, and streaming its record files.

A run is a directory with one record file per rank, and further ones for each attempt after a
restart.  Files are streamed: a run of any length is read in constant memory.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainperf.core.errors import RunError
from trainperf.core.run_directory import NAME, RECORD_FILES, rank_and_attempt
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock, StepSchema
from trainperf.core.steps.codec import Entry, decode_entry, decode_info, decode_steps
from trainperf.core.steps.records import RunInfo


_PLACES = tuple(f"{above}{NAME}*" for above in ("", "*/", "*/*/"))
"""Where a run is searched for below a directory: e.g. in `lightning_logs/version_0`."""

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 16 << 20
"""Far above any valid line: a longer one is damage and must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """Lines that are damaged and were skipped."""

    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """What one rank wrote during one attempt."""

    path: Path
    rank: int
    attempt: int
    info: RunInfo

    def entries(self) -> Iterator[StepBlock | Entry | Damaged]:
        """The file's contents; steps in blocks, in order, up to the last whole line.

        Other entries may come before steps that were written earlier; their fields place them.
        """
        schema = StepSchema(self.info.columns, self.info.device)
        pending: list[bytes] = []
        header = 1
        # A million steps are a million lines: they are separated by the list, not one by one.
        for lines in _whole_lines(self.path):
            steps = [line for line in lines[header:] if line[:1] == b"["]
            if len(steps) < len(lines) - header:
                others = [line for line in lines[header:] if line[:1] != b"["]
                yield from (decode_entry(line) or Damaged(1) for line in others)
            header = 0
            pending += steps
            while len(pending) >= BLOCK_STEPS:
                yield from decoded(schema, pending[:BLOCK_STEPS])
                del pending[:BLOCK_STEPS]
        yield from decoded(schema, pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run directory: who wrote what.  `trainperf.analysis.run.replay` reads the steps."""

    path: Path
    attempts: tuple[tuple[RecordFile, ...], ...]
    """Record files in the order of the attempts, each in the order of ranks."""
    warnings: tuple[str, ...] = ()
    """What had to be chosen or skipped to open it."""

    @classmethod
    def open(cls, path: Path | str) -> "Run":
        """Find a run at or below *path* and read its headers; `RunError` says why it cannot."""
        try:
            return _open(Path(path))
        except OSError as error:
            raise RunError(f"{path}: {error.strerror or error}") from None

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
        """Name for people: the directory, or the one above a plain `trainperf`."""
        directory = self.path.resolve()
        return directory.parent.name if directory.name == NAME else directory.name

    def last_write_s(self) -> float:
        """When the latest attempt was last written to, seconds since 1970 by the file system."""
        return max(file.path.stat().st_mtime for file in self.attempts[-1])


def _open(path: Path) -> Run:
    if not path.exists():
        raise RunError(f"{path}: no such file or directory")
    if path.is_file() and rank_and_attempt(path.name):
        path = path.parent
    if not path.is_dir():
        raise RunError(f"{path}: not a run directory; give the one that holds steps-rank0.jsonl")
    if _record_paths(path):
        return _opened(path, ())
    below = [run for pattern in _PLACES for run in _runs_below(path, pattern)]
    if not below:
        raise RunError(f"{path}: not a run directory: no {RECORD_FILES} in or below it")
    newest = max(below, key=_began)
    notice = f"{len(below)} runs in {path}: reading the newest, {newest.relative_to(path)}"
    return _opened(newest, (notice,) if len(below) > 1 else ())


def _runs_below(path: Path, pattern: str) -> list[Path]:
    return [run for run in sorted(path.glob(pattern)) if run.is_dir() and _record_paths(run)]


def _record_paths(directory: Path) -> dict[Path, tuple[int, int]]:
    """Record files to their rank and attempt."""
    named = ((path, rank_and_attempt(path.name)) for path in sorted(directory.iterdir()))
    return {path: writer for path, writer in named if writer}


def _began(directory: Path) -> tuple[str, float]:
    """Start of a run by its own clock: copying a directory changes the files' times."""
    paths = _record_paths(directory)
    headers = [_header_or_problem(path) for path in paths]
    started = [info.started_at for info in headers if isinstance(info, RunInfo)]
    return max(started, default=""), max(path.stat().st_mtime for path in paths)


def _opened(directory: Path, warnings: tuple[str, ...]) -> Run:
    files: list[RecordFile] = []
    problems: list[str] = []
    for path, (rank, attempt) in _record_paths(directory).items():
        header = _header_or_problem(path)
        if isinstance(header, RunInfo):
            files.append(RecordFile(path=path, rank=rank, attempt=attempt, info=header))
        else:
            problems.append(header)
    if not files:
        raise RunError(problems[0])
    skipped = (f"skipped: {problem}" for problem in problems)
    return Run(path=directory, attempts=_by_attempt(files), warnings=(*warnings, *skipped))


def _by_attempt(files: Iterable[RecordFile]) -> tuple[tuple[RecordFile, ...], ...]:
    attempts: dict[int, list[RecordFile]] = {}
    for file in sorted(files, key=lambda file: (file.attempt, file.rank)):
        attempts.setdefault(file.attempt, []).append(file)
    return tuple(tuple(files) for files in attempts.values())


def _header_or_problem(path: Path) -> RunInfo | str:
    lines = next(_whole_lines(path), None)
    if lines is None:
        return f"{path}: empty, or cut short before the end of its first line"
    try:
        return decode_info(lines[0])
    except RunError as error:
        return f"{path}: {error}"


def decoded(schema: StepSchema, lines: list[bytes]) -> Iterator[StepBlock | Damaged]:
    """The steps of whole lines, and how many lines are damaged."""
    block, damaged = decode_steps(schema, lines)
    if len(block):
        yield block
    if damaged:
        yield Damaged(damaged)


def _whole_lines(path: Path) -> Iterator[list[bytes]]:
    """Complete lines, some at a time; the rest is still being written or was cut off."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if len(rest) > _LONGEST_LINE:
                rest = b"?"
            if lines:
                yield lines
