"""The runs below a log directory.

A run's id is its path below the directory: the only thing a browser may ask for, and only ids that
were found here are answered, so no request can name a path of its own.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainperf.core import run_directory


_DEEPEST = 6
"""`lightning_logs/version_0/trainperf` is three; sweeps add one or two."""

_MOST_DIRECTORIES = 20_000
"""A log directory on a network disk must not hold the page up."""

_NEVER = frozenset({run_directory.TRACES, "checkpoints", "wandb", "mlruns", "__pycache__"})
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
    """Directories that hold record files, and when one of these was last written.

    What cannot be read, or is gone meanwhile, is passed over: there is no run to show in it.
    """
    visited: set[str] = set()
    for folder, below, files in os.walk(root, followlinks=True):
        # A link back up would otherwise be followed down again and again.
        real, depth = os.path.realpath(folder), len(Path(folder).relative_to(root).parts)
        if real in visited or len(visited) >= _MOST_DIRECTORIES:
            below.clear()
            continue
        visited.add(real)
        kept = (name for name in below if name not in _NEVER and not name.startswith("."))
        below[:] = sorted(kept) if depth < _DEEPEST else []
        records = [Path(folder, name) for name in files if run_directory.rank_and_attempt(name)]
        with suppress(OSError):
            if records:
                yield Path(folder), max(path.stat().st_mtime for path in records)


Stamp = tuple[str, int, int, int]
"""Name, inode, size and time of last change in nanoseconds: changes when the file does."""


def stamp(path: Path) -> Stamp:
    """What changes when the file does."""
    status = path.stat()
    return path.name, status.st_ino, status.st_size, status.st_mtime_ns
