"""The trace files that a path stands for: of a directory, those of its last capture."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.core.errors import TraceError
from trainperf.core.run_directory import ANALYSIS_SUFFIX, SUMMARY, TRACES, CaptureName


_SUFFIXES = (".json", ".json.gz")
_NOT_TRACES = (ANALYSIS_SUFFIX, SUMMARY)
_THEIRS = re.compile(r"(?P<worker>.+)\.(?P<time>\d{10,})(\.pt)?\.trace\.json(\.gz)?")
"""As torch's own handler for TensorBoard names them: one worker writes one file per capture."""

NAMED = 8
"""Ranks or files that are named in a sentence; of more it says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """One file to analyse."""

    path: Path
    demanded: bool
    """Whether somebody named it: then it must be a trace."""


def trace_files(paths: Sequence[Path]) -> tuple[list[TraceFile], list[str]]:
    """The files to read, and what is said about those that are not.

    Raises:
        TraceError: a directory holds none.
    """
    jobs, notes = [], []
    for path in paths:
        if not path.is_dir():
            jobs.append(TraceFile(path=path, demanded=True))
            continue
        inside = _inside(path)
        if not inside:
            raise TraceError(f"{path}: no trace in this directory (*.json, *.json.gz)")
        captures = _captures(inside)
        if len(captures) > 1:
            others = some([name for name, _ in captures[:-1]])
            notes.append(
                f"{path.name}: {len(captures)} captures, of which this is the last "
                f"({captures[-1][0]}); the others: {others}"
            )
        jobs += [TraceFile(path=file, demanded=False) for file in captures[-1][1]]
    unique = {job.path.resolve(): job for job in jobs}
    return list(unique.values()), notes


def _inside(directory: Path) -> list[Path]:
    """The trace files of a directory, or of the directory `traces` of a run."""
    traces = directory / TRACES
    where = traces if traces.is_dir() else directory
    return sorted(
        path
        for path in where.iterdir()
        if path.name.endswith(_SUFFIXES)
        and not path.name.endswith(_NOT_TRACES)
        and not path.name.startswith(".")
        and path.is_file()
    )


def _captures(files: Sequence[Path]) -> list[tuple[str, list[Path]]]:
    """The files by capture, in order of time: by their names, which say steps or times."""
    groups: dict[str, list[Path]] = defaultdict(list)
    workers: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    for path in files:
        ours = CaptureName.parse(path.name)
        if ours is not None and ours.rank is not None:
            groups[ours.capture].append(path)
        elif theirs := _THEIRS.fullmatch(path.name):
            workers[theirs["worker"]].append((int(theirs["time"]), path))
        else:
            groups[""].append(path)
    for times in workers.values():
        # The clocks of workers differ; the order of each one's captures does not.
        for place, (_, path) in enumerate(sorted(times), start=1):
            groups[f"{place:09d}"].append(path)
    return [(_label(key), groups[key]) for key in sorted(groups)]


def _label(key: str) -> str:
    if not key:
        return "the files without a number"
    return f"capture {int(key)}" if key.isdecimal() else key


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
