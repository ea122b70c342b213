"""Where does a run live?  In a directory of its own that is never overwritten."""

import os
from pathlib import Path


def choose(base: Path) -> Path:
    """The directory of a new run, or of the one an elastic launcher is restarting.

    Raises:
        OSError: The directory cannot be made.
    """
    before = latest(base) if attempt() else None
    return before if before is not None else create(base)


def create(base: Path) -> Path:
    """Make and return `base/trainperf`, or `trainperf-1`, … if that exists.

    Raises:
        OSError: The directory cannot be made.
    """
    for number in range(10_000):
        path = base / (f"trainperf-{number}" if number else "trainperf")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{base}: ten thousand runs already; clean up")


def discard_empty(run: Path) -> bool:
    """Remove a run directory in which nothing was written: the fit never began."""
    try:
        run.rmdir()
    except OSError:
        return False
    return True


def latest(base: Path) -> Path | None:
    """The newest run directory under *base*; `None` when there is none."""
    runs = [path for path in base.glob("trainperf*") if list(path.glob("steps-rank*.jsonl"))]
    return max(runs, key=lambda path: path.stat().st_mtime, default=None)


def attempt() -> int:
    """How often an elastic launcher has restarted this job; 0 the first time."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") or 0)


def record_file(run: Path, rank: int, attempt: int = 0) -> Path:
    """The record file of one rank; a restart writes one of its own."""
    suffix = f".attempt{attempt}" if attempt else ""
    return run / f"steps-rank{rank}{suffix}.jsonl"


def has_ended(path: Path) -> bool:
    """Whether the last line of a record file is its end mark."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 200))
            return b'"kind":"end"' in file.read()
    except OSError:
        return False
