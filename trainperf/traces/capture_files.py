"""The analyses of captures on disk, `traces/*.analysis.json`, and which steps each is of.

One file per capture: of a single rank while the fit goes on, of all ranks that traced the same
steps once it has ended.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from trainperf.core.errors import TraceError
from trainperf.core.groups import grouped
from trainperf.core.paths import AnyPath, listed
from trainperf.core.run_directory import (
    ANALYSIS_SUFFIX,
    TRACE_SUFFIX,
    TRACES,
    CaptureName,
    capture_of,
    write_atomically,
)
from trainperf.traces.reading.decode import FAULTS, EventDecoder
from trainperf.traces.reading.source import ReadLimits
from trainperf.traces.reading.splitter import TraceDocument, Value
from trainperf.traces.results import TraceReport


Report = TypeVar("Report", bound=TraceReport)

OURS = "trainperf"
"""Key next to the events under which our profiler writes what it knows of the capture."""


class CaptureFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the profiler knew of a capture."""

    first_step: int
    """Number of its first step in names and marks: it goes on from a checkpoint."""
    first_index: int
    """Number of the same step in the records of this fit."""
    complete_steps: int
    ended_by: str | None = None
    """The gap that ended it early."""


class CaptureReport(TraceReport, frozen=True, kw_only=True):
    """An analysis, with where in the run its traces belong."""

    capture: CaptureFacts


def facts_of(trace: Path) -> CaptureFacts:
    """What our profiler wrote into a trace about the capture.

    Raises:
        TraceError: It is no trace of ours.
    """
    for part in TraceDocument(trace, ReadLimits(), EventDecoder()).parts():
        if isinstance(part, Value) and part.key == OURS:
            try:
                return msgspec.json.decode(part.body, type=CaptureFacts)
            except FAULTS:
                break
    raise TraceError(f"{trace}: does not say which steps of a run it is of; use `trainperf trace`")


def rank_of(trace: Path | str) -> int | None:
    """The rank that wrote a trace of ours, by its name."""
    name = CaptureName.parse(Path(trace).name)
    return name.rank if name else None


def analysis_file(traces: Sequence[Path]) -> Path:
    """Where the analysis of these traces of one capture goes: next to the first of them."""
    first = traces[0]
    of_all = capture_of(first.name) if len(traces) > 1 else None
    stem = of_all or first.name.split(".", maxsplit=1)[0]
    return first.with_name(f"{stem}{ANALYSIS_SUFFIX}")


def write(report: CaptureReport, target: Path) -> None:
    """Write an analysis, whole or not at all.

    Raises:
        OSError: The directory cannot be written, or the disk is full.
    """
    write_atomically(target, msgspec.json.encode(report) + b"\n")


def read_all(run: AnyPath) -> list[CaptureReport]:
    """The analyses of a run in order of their steps, without lanes; damaged ones are left out."""
    try:
        files = [file.path for file in listed(run / TRACES)]
    except OSError:  # most runs have no captures
        return []
    reports = (_read(file) for file in files if file.name.endswith(ANALYSIS_SUFFIX))
    return sorted(filter(None, reports), key=lambda report: report.capture.first_index)


def groups(run: Path) -> list[list[Path]]:
    """The traces of a run, those that several ranks wrote of the same steps together, by rank."""
    files = (run / TRACES).glob(f"rank*{TRACE_SUFFIX}")
    traces = [path for path in files if capture_of(path.name)]
    several = grouped((capture_of(path.name), path) for path in traces).values()
    ordered = (sorted(paths, key=lambda path: rank_of(path) or 0) for paths in several)
    return sorted(ordered, key=lambda paths: paths[0].name)


def decode_report(data: bytes, kind: type[Report]) -> Report:
    """An analysis from its file; findings that an earlier version wrote otherwise are left out.

    Whoever shows an analysis makes its findings anew, from what was measured.

    Raises:
        msgspec.DecodeError: It is no analysis.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        parts.pop("findings", None)
        return msgspec.json.decode(msgspec.json.encode(parts), type=kind)


def _read(path: AnyPath) -> CaptureReport | None:
    try:
        report = decode_report(path.read_bytes(), CaptureReport)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # `trainperf trace` makes another from the trace, which is kept
    ranks = tuple(msgspec.structs.replace(rank, lanes=()) for rank in report.ranks)
    return msgspec.structs.replace(report, ranks=ranks)
