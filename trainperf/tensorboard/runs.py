"""The runs below a log directory, each held in memory while it grows.

A run's id is its path below the directory: the only thing a browser may ask for, and only ids that
were found here are answered, so no request can name a path of its own.

Record files are only ever appended to: only what was appended is read again.  What was decoded is
kept with the place it reaches to; a file that is no longer the one it was (another inode, shorter,
other bytes where we stopped) is read from its beginning.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import pieces
from trainperf.analysis.run.record_file import Content, RecordFile, RecordReader
from trainperf.core import run_directory
from trainperf.core.artifacts.manifest import Manifest
from trainperf.core.places import AnyPath
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock
from trainperf.core.steps.records import RunInfo


_DEEPEST = 6
"""`lightning_logs/version_0/trainperf` is three; sweeps add one or two."""

_MOST_DIRECTORIES = 20_000
"""A log directory on a network disk must not hold the page up."""

_NEVER = frozenset(
    {run_directory.TRACES, run_directory.TB, "checkpoints", "wandb", "mlruns", "__pycache__"}
)
"""What others put next to runs, or runs hold: never a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A directory with record files."""

    id: str
    """Path below the log directory; `.` for the directory itself."""
    path: Path
    name: str
    """What a person calls it: the id without a last `trainperf`, which every run has."""
    written_s: float
    """When it was last written to, seconds since 1970 by the file system."""


def find_runs(roots: Sequence[Path]) -> dict[str, FoundRun]:
    """Runs at or below the log directories, by id, the last written first."""
    runs: dict[str, FoundRun] = {}
    for place, root in enumerate(roots):
        prefix = f"{place}:" if len(roots) > 1 else ""
        for path, written_s in _with_records(root):
            below = path.relative_to(root).as_posix()
            run_id = prefix + below
            runs[run_id] = FoundRun(
                id=run_id, path=path, name=prefix + _name(root, below), written_s=written_s
            )
    ordered = sorted(runs.values(), key=lambda run: (-run.written_s, run.id))
    return {run.id: run for run in ordered}


def _name(root: Path, below: str) -> str:
    if below == ".":
        directory = root.resolve()
        return directory.parent.name if directory.name == run_directory.NAME else directory.name
    if below == run_directory.NAME:
        return root.resolve().name
    return below.removesuffix(f"/{run_directory.NAME}")


def _with_records(root: Path) -> Iterator[tuple[Path, float]]:
    """Directories that hold record files, and when one of these was last written."""
    visited: set[str] = set()
    waiting = [(root, 0)]
    while waiting and len(visited) < _MOST_DIRECTORIES:
        directory, depth = waiting.pop()
        # A link back up would otherwise be followed down again and again.
        real = os.path.realpath(directory)
        if real in visited:
            continue
        visited.add(real)
        below, written_s = _looked_at(directory)
        if written_s is not None:
            yield directory, written_s
        if depth < _DEEPEST:
            waiting += [(path, depth + 1) for path in reversed(below)]


def _looked_at(directory: Path) -> tuple[list[Path], float | None]:
    """Directories in it, and the last write to a record file in it if there is one."""
    below: list[Path] = []
    written_s: float | None = None
    try:
        with os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir():
                    if entry.name not in _NEVER and not entry.name.startswith("."):
                        below.append(directory / entry.name)
                elif run_directory.rank_and_attempt(entry.name) or entry.name == Manifest.file:
                    written_s = max(written_s or 0.0, entry.stat().st_mtime)
    except OSError:
        # Removed or forbidden meanwhile: there is no run to show in it.
        return [], None
    return below, written_s


_PRINT_BYTES = 4096
"""So many bytes before the place we stopped at must be what they were."""

Stamp = tuple[str, int, int, int]
"""Name, inode, size and time of last change in nanoseconds: changes when the file does."""


class HeldRun:
    """A run directory that can be looked at again and again.

    Args:
        path: The directory.
        most_bytes: Record files that are together larger are streamed anew each time, in constant
            memory: a step takes about as much decoded as on disk.
    """

    def __init__(self, path: Path, most_bytes: int = 512 << 20) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._memories: dict[AnyPath, FileMemory] = {}

    def read(self) -> Run:
        """The run as it is now, its steps in memory.

        Raises:
            RunError: It is no run directory any more.
        """
        run = Run.open(self.path)
        every = [file for files in run.attempts for file in files]
        paths = [f.path for f in every if isinstance(f.path, Path) and len(f.parts) == 1]
        total_bytes = sum(file.size_bytes for file in every)
        if len(paths) < len(every) or total_bytes > self._most_bytes:
            self._memories = {}
            return run
        memories: dict[AnyPath, FileMemory] = {
            path: self._memories.get(path) or FileMemory(path) for path in paths
        }
        for files in run.attempts:
            for file in files:
                memories[file.path].read(file)
        self._memories = memories
        attempts = tuple(
            tuple(replace(file, held=memories[file.path].contents()) for file in files)
            for files in run.attempts
        )
        return replace(run, attempts=attempts)

    @property
    def held_bytes(self) -> int:
        """Memory the decoded steps take."""
        return sum(memory.held_bytes for memory in self._memories.values())


def stamp(path: Path) -> Stamp:
    """What changes when the file does."""
    status = path.stat()
    return path.name, status.st_ino, status.st_size, status.st_mtime_ns


class FileMemory:
    """What one record file held when it was last read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: Stamp | None = None
        self._info: RunInfo | None = None

    def read(self, file: RecordFile) -> None:
        """Read what was appended; all of it if the file is another one than before."""
        now = stamp(self.path)
        if now == self._stamp:
            return
        if not self._continues(now, file.info):
            self._reader, self._info = RecordReader(file), file.info
            self._blocks: list[StepBlock] = []
            self._others: list[Content] = []
        self._reader.lines.parts = file.parts
        for content in self._reader.entries():
            if isinstance(content, StepBlock):
                self._blocks.append(content)
            else:
                self._others.append(content)
        # As they are cut when the whole file is read: sums of floats depend on it.
        full = list(takewhile(lambda block: len(block) == BLOCK_STEPS, self._blocks))
        self._blocks = [*full, *pieces(iter(self._blocks[len(full) :]), BLOCK_STEPS)]
        self._before = self._bytes_before(self._reader.lines.offset)
        self._stamp = now

    def contents(self) -> list[Content]:
        """What the file held: steps in blocks, in order, and everything else first."""
        return [*self._others, *self._blocks]

    @property
    def held_bytes(self) -> int:
        """Memory the decoded steps take."""
        return sum(block.cells().nbytes for block in self._blocks)

    def _continues(self, now: Stamp, info: RunInfo) -> bool:
        """Whether only lines were added since."""
        before = self._stamp
        if before is None or info != self._info:
            return False
        grew = now[1] == before[1] and now[2] > before[2]
        return grew and self._bytes_before(self._reader.lines.offset) == self._before

    def _bytes_before(self, place: int) -> bytes:
        begin = max(0, place - _PRINT_BYTES)
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(place - begin)
