"""The run directory: where a run lives, and the names of the files in it.

A run's directory is its own and is never overwritten.  Every file name that a program of ours
writes there, or looks for, is made or parsed here.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from trainperf.core.paths import AnyPath, ListedFile, is_remote, listed, storage_errors


NAME = "trainperf"
"""Of a run directory; later ones in the same place are `trainperf-1`, `trainperf-2`, …"""

RECORD_FILES = "steps-rank*.jsonl"
"""Pattern of the record files of all ranks."""
SUMMARY = "summary.json"
REPORT = "report.html"
TRACES = "traces"
"""Folder of the original traces and their analyses."""
STANDSTILL = "standstill-rank{}.json"
"""What a rank is at in which no step has ended for long."""
FLIGHT_RECORDER = "flight-recorder-rank{}.json"
"""PyTorch's record of the collectives of such a rank, where it keeps one."""
CAPTURE_REQUEST = "capture"
"""File that asks a running fit for a capture."""

TRACE_SUFFIX = ".trace.json.gz"
"""Not `.pt.trace.json.gz`, which torch-tb-profiler 0.4.3 finds, and misreads."""
TRACE_SUFFIXES = (TRACE_SUFFIX, ".trace.json")
ANALYSIS_SUFFIX = ".analysis.json"

PART_BYTES = 8_000_000
"""Size at which a record file, or a machine's, goes on in another part: some 50,000 steps.

What a crash leaves unpacked, and what is uploaded again while it grows: object storage cannot
append.
"""
PACKED_SUFFIX = ".packed"
"""Of a part of a record file, or of a machine's, that is no longer written to."""

_BLOCK_BYTES = 8 << 20
"""Of a larger object that is in memory while it is written: S3 takes no less than 5 MiB."""

_PART = re.compile(
    r"(steps|machine)-rank(\d{1,6})(?:\.attempt(\d{1,6}))?(?:\.part(\d{1,6}))?\.(?:jsonl|packed)"
)
_CAPTURE = re.compile(
    r"(?:rank(?P<rank>\d+)-)?(?P<capture>step(?P<first>\d+)-(?P<steps>\d+)steps(?:-(?P<again>\d+))?)"
    r"(?:\.trace\.json(?:\.gz)?|\.analysis\.json)?"
)


def choose(base: AnyPath) -> AnyPath:
    """The directory of a new run, or of the one an elastic launcher is restarting.

    A further fit of the restarted process has a directory of its own.  Of a new run behind a URL
    nothing is read.

    Raises:
        OSError: The directory cannot be made, or that of the run before cannot be found.
    """
    before = latest(base) if attempt() else None
    if before is None or has_begun(record_file(before, 0, attempt())):
        return create(base)
    return before


def create(base: AnyPath) -> AnyPath:
    """Make and return `base/trainperf`, or `trainperf-1`, … if that exists.

    Behind a URL its name has the time and a number: two jobs never choose the same.

    Raises:
        OSError: The directory cannot be made.
    """
    if is_remote(base):
        began = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
        return base / f"{NAME}-{began}-{secrets.token_hex(3)}"
    for number in range(10_000):
        path = base / (f"{NAME}-{number}" if number else NAME)
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            return path
    raise FileExistsError(f"{base}: ten thousand runs already; clean up")


def latest(base: AnyPath) -> AnyPath | None:
    """The newest run directory under *base*; `None` when there is none.

    Raises:
        OSError: It cannot be listed.
    """
    runs: list[ListedFile] = []
    with suppress(FileNotFoundError), storage_errors():
        for folder in listed(base):
            is_run = folder.is_dir and folder.path.name.startswith(NAME)
            if is_run and any(rank_and_attempt(file.path.name) for file in listed(folder.path)):
                runs.append(folder)
    # Folders in object storage have no time, but names that begin with it.
    newest = max(runs, key=lambda run: (run.modified_s, run.path.name), default=None)
    return None if newest is None else newest.path


def attempt() -> int:
    """How often an elastic launcher has restarted this job; 0 the first time."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") or 0)


def record_file(run: Path, rank: int, attempt: int = 0) -> Path:
    """The record file of one rank; a restart writes one of its own."""
    suffix = f".attempt{attempt}" if attempt else ""
    return run / f"steps-rank{rank}{suffix}.jsonl"


def machine_file(run: Path, rank: int, attempt: int = 0) -> Path:
    """What the machine of a host did, whose first rank this is; a restart writes one of its own."""
    return run / record_file(run, rank, attempt).name.replace("steps", "machine", 1)


def record_part(file_name: str, part: int) -> str:
    """Name of a part of a record file, or of a machine's.

    Long ones have several, and object storage cannot append.  The first part has the name of the
    file itself.
    """
    return f"{file_name.removesuffix('.jsonl')}.part{part}.jsonl" if part else file_name


def packed_part(part: AnyPath) -> AnyPath:
    """Where a part of a record file is once it is packed."""
    return part.parent / f"{part.name.removesuffix('.jsonl')}{PACKED_SUFFIX}"


def is_packed(file_name: str) -> bool:
    """Whether a part of a record file is packed."""
    return file_name.endswith(PACKED_SUFFIX)


def has_begun(first: Path) -> bool:
    """Whether there is a record file with this first part, packed by now or not."""
    return first.exists() or packed_part(first).exists()


def last_part(first: Path) -> Path:
    """The part of a record file that is written to: the last."""
    later = first.parent.glob(f"{first.name.removesuffix('.jsonl')}.part*.jsonl")
    return max(later, key=lambda part: part_number(part.name), default=first)


def rank_and_attempt(
    file_name: str, kind: Literal["steps", "machine"] = "steps"
) -> tuple[int, int] | None:
    """Whose record file, or part of one, has that name; `None` for any other file.

    Of the *kind* `machine`: the first rank of the host whose machine it is of.
    """
    match = _PART.fullmatch(file_name)
    return (int(match[2]), int(match[3] or 0)) if match and match[1] == kind else None


def part_number(file_name: str) -> int:
    """Which part of its record file has that name; 0 for the first, and for any other file."""
    match = _PART.fullmatch(file_name)
    return int(match[4] or 0) if match else 0


def has_ended(first: Path) -> bool:
    """Whether the last line of a record file with this first part is its end mark."""
    return b'"kind":"end"' in tail(last_part(first), 200)


def tail(path: Path, most_bytes: int) -> bytes:
    """The end of a file; empty where there is none, or it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most_bytes))
        return file.read()
    return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureName:
    """What the name of a trace, or of the analysis of traces, says."""

    rank: int | None
    """`None` for the analysis of all ranks that traced the same steps."""
    capture: str
    """`step000005-3steps`: the same on every rank."""
    first_step: int
    steps: int
    again: int | None
    """Number of the repetition, where a restarted job traced the same steps; else `None`."""

    @classmethod
    def parse(cls, file_name: str) -> "CaptureName | None":
        """The parts of the name, with or without its suffix; `None` if it is not one of ours."""
        match = _CAPTURE.fullmatch(file_name)
        if match is None:
            return None
        return cls(
            rank=int(match["rank"]) if match["rank"] is not None else None,
            capture=match["capture"],
            first_step=int(match["first"]),
            steps=int(match["steps"]),
            again=int(match["again"]) if match["again"] is not None else None,
        )


def capture_of(trace_name: str) -> str | None:
    """The capture that a trace of ours belongs to, by its name; the same on every rank."""
    name = CaptureName.parse(trace_name)
    return name.capture if name and name.rank is not None else None


def trace_stem(rank: int, first_step: int, steps: int) -> str:
    """Name of a trace without its suffix, as `CaptureName.parse` reads it."""
    return f"rank{rank}-step{first_step:06d}-{steps}steps"


@contextmanager
def drafted(target: AnyPath) -> Iterator[AnyPath]:
    """A file to write in place of *target*, which it replaces if the block does not raise.

    Readers never see half a file, and a block that raises leaves neither.  Behind a URL it is the
    target itself: an object appears whole.

    Raises:
        OSError: The file cannot be written.
    """
    if is_remote(target):
        yield target
        return
    draft = target.with_name(f".{target.name}-{os.getpid()}.tmp")
    try:
        yield draft
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def write_atomically(target: AnyPath, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    with drafted(target) as draft:
        draft.write_bytes(content)


def copy_file(source: AnyPath, target: AnyPath) -> None:
    """Copy a file, whole or not at all, piece by piece.

    Raises:
        OSError: A file cannot be read or written.
    """
    options: dict[str, Any] = {"block_size": _BLOCK_BYTES} if is_remote(target) else {}
    if not options:
        target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file, drafted(target) as draft, draft.open("wb", **options) as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
