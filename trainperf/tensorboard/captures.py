"""The captures of a run: its analysed traces, those without an analysis, and their files.

An analysis is a `TraceReport` as JSON in `traces/*.analysis.json`.  A trace that none of them
mentions is listed too: it can be downloaded, opened in Perfetto and given to `trainperf trace`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainperf.analysis.diagnosis.of_capture import diagnosed
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.html.figures import Axis, Frame, Mark, Unit, keys, lanes
from trainperf.core.formatting.html.markup import Markup, paragraph
from trainperf.core.formatting.html.palette import KINDS
from trainperf.core.formatting.units import duration, step_range
from trainperf.core.run_directory import ANALYSIS_SUFFIX, TRACE_SUFFIXES, TRACES, CaptureName
from trainperf.tensorboard.runs import Stamp, stamp
from trainperf.traces.capture_files import decode_report
from trainperf.traces.results import RankTrace, Slice, TraceLane, TraceReport


_LARGEST_ANALYSIS = 64 << 20
"""A report of ours has some hundred kilobytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceListing:
    """What the folder of traces holds, by name."""

    analyses: dict[str, Stamp]
    traces: dict[str, int]
    """Trace file to its size in bytes."""


class CaptureEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One capture in the list: enough to choose it."""

    key: str
    """Name of its analysis; of the trace itself where there is none."""
    version: str
    """Changes when the analysis does."""
    title: str
    answer: str
    """The analysis in a sentence; empty where there is none."""
    problem: str
    """Why there is no analysis to show."""
    ranks: list[int | None]
    traces: list[dict[str, str | int]]
    """Original traces that can be downloaded: `file`, and its size in `bytes`."""


class Captures:
    """The captures of one run."""

    def __init__(self, run: Path) -> None:
        self._folder = run / TRACES

    def listing(self) -> TraceListing:
        """What is there now."""
        analyses: dict[str, Stamp] = {}
        traces: dict[str, int] = {}
        for path in _files(self._folder):
            if path.name.endswith(ANALYSIS_SUFFIX):
                analyses[path.name] = stamp(path)
            elif path.name.endswith(TRACE_SUFFIXES) and not path.name.startswith("."):
                traces[path.name] = path.stat().st_size
        return TraceListing(analyses=analyses, traces=traces)

    def listed(self, listing: TraceListing) -> list[CaptureEntry]:
        """Every capture, analysed or not, in the order of their steps.

        The analysis of one rank is left out once there is one of all ranks.
        """
        every = {name: self.report(name, listing) for name in listing.analyses}
        shown = {name: report for name, report in every.items() if not _joined(report, every)}
        mentioned = {file for report in shown.values() for file in _files_of(report)}
        for file in listing.traces:
            if file not in mentioned:
                shown[file] = f"not analysed yet: trainperf trace {plain(f'{TRACES}/{file}')}"
        entries = [_entry(key, report, listing) for key, report in shown.items()]
        return sorted(entries, key=lambda entry: _order(entry.key))

    def report(self, name: str, listing: TraceListing) -> TraceReport | str:
        """An analysis that was found, or why it cannot be read."""
        return _decoded(self._folder / name, listing.analyses[name])

    def trace(self, file: str, listing: TraceListing) -> Path | None:
        """Where a trace that was found is; `None` for any other name."""
        return self._folder / file if file in listing.traces else None


def _files(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.is_file())
    except OSError:
        return []


def _decoded(path: Path, now: Stamp) -> TraceReport | str:
    if now[2] > _LARGEST_ANALYSIS:
        return "the analysis is too large to be one of ours"
    try:
        return diagnosed(decode_report(path.read_bytes(), TraceReport))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"the analysis cannot be read: {plain(str(error))}"
    except OSError as error:
        return f"the analysis cannot be read: {error.strerror}"


def _joined(report: TraceReport | str, every: Mapping[str, TraceReport | str]) -> bool:
    """Whether another analysis has all traces of this one, and more."""
    files = _files_of(report)
    return bool(files) and any(files < _files_of(other) for other in every.values())


def _files_of(report: TraceReport | str) -> set[str]:
    return set() if isinstance(report, str) else {rank.file for rank in report.ranks}


def _order(key: str) -> tuple[int, str]:
    named = CaptureName.parse(key)
    return (named.first_step if named else 0, key)


def _title(key: str) -> str:
    """The steps in words where the name is one of ours, else the name."""
    named = CaptureName.parse(key)
    stem = key
    for ending in (ANALYSIS_SUFFIX, *TRACE_SUFFIXES):
        stem = stem.removesuffix(ending)
    if named is None:
        return plain(stem)
    title = step_range(named.first_step, named.first_step + named.steps - 1)
    rank = "" if named.rank is None else f" · rank {named.rank}"
    again = "" if named.again is None else f" · again ({named.again})"
    return f"{title}{rank}{again}"


def _entry(key: str, report: TraceReport | str, listing: TraceListing) -> CaptureEntry:
    """Of an analysis, or of a trace without one: why there is none."""
    read = None if isinstance(report, str) else report
    files = [key] if read is None else [rank.file for rank in read.ranks]
    version = listing.analyses.get(key, ("", 0, listing.traces.get(key, 0), 0))[1:]
    return CaptureEntry(
        key=key,
        version="-".join(map(str, version)),
        title=_title(key),
        answer="" if read is None else plain(read.answer),
        problem="" if isinstance(report, TraceReport) else report,
        ranks=[] if read is None else [rank.rank for rank in read.ranks],
        traces=[
            {"file": file, "bytes": listing.traces[file]}
            for file in files
            if file in listing.traces
        ],
    )


MOST_SLICES = 400
"""In one lane: a slice or so for three pixels."""

MOST_LANES = 24
"""More do not fit on a page; the first are the ones the analysis found most worth it."""


def picture(rank: RankTrace, first_s: float | None, last_s: float | None) -> Markup:
    """What a rank did from *first_s* to *last_s*, lane by lane; in all of it by default."""
    slices = [piece for lane in rank.lanes for piece in lane.slices]
    if not slices:
        return Markup("")
    begin_s = min(piece.start_s for piece in slices) if first_s is None else first_s
    end_s = max(piece.end_s for piece in slices) if last_s is None else last_s
    across = Axis(low=begin_s, high=end_s, unit=Unit.of("s", end_s - begin_s))
    # There is no whole number in between: the vertical axis has no ticks.
    frame = Frame(across=across, up=Axis(low=0.1, high=0.9, whole=True), height=2)
    rows = [(lane.name, _marks(lane, frame)) for lane in rank.lanes[:MOST_LANES]]
    left_out = len(rank.lanes) - MOST_LANES
    note = f"{left_out} more lanes are in the trace itself" if left_out > 0 else ""
    kinds = sorted({kind for _, marks in rows for _, _, kind, _ in marks})
    return Markup(
        f'<div data-first="{begin_s:.9f}" data-last="{end_s:.9f}">'
        + lanes(rows)
        + frame.picture("time in the trace", [])
        + keys((kind.removeprefix("kind-"), kind) for kind in kinds)
        + (paragraph(note, "soft small") if note else "")
        + "</div>"
    )


@dataclass(slots=True)
class _Block:
    """A slice, or neighbours of one kind that are together too short to be told apart."""

    first: Slice
    end_s: float
    covered_s: float
    many: int = 1

    @property
    def long_s(self) -> float:
        return self.end_s - self.first.start_s

    def name(self) -> str:
        if self.many == 1:
            return self.first.name
        return f"{self.many} × {self.first.kind}, together {duration(self.covered_s)}"

    def take(self, piece: Slice) -> None:
        self.many += 1
        # What overlaps or nests is not covered twice.
        begin_s = max(piece.start_s, self.end_s)
        self.covered_s += max(0.0, piece.end_s - begin_s)
        self.end_s = max(self.end_s, piece.end_s)


def _marks(lane: TraceLane, frame: Frame) -> list[Mark]:
    first_s, last_s = frame.across.low, frame.across.high
    inside = [piece for piece in lane.slices if piece.end_s >= first_s and piece.start_s <= last_s]
    marks = []
    for block in _blocks(inside, (last_s - first_s) / MOST_SLICES):
        left, right = frame.x(block.first.start_s), frame.x(block.end_s)
        kind = block.first.kind if block.first.kind in KINDS else "other"
        label = f"{block.name()}: {duration(block.long_s)} from {duration(block.first.start_s)}"
        marks.append((left, right - left, f"kind-{kind}", label))
    return marks


def _blocks(slices: list[Slice], least_s: float) -> list[_Block]:
    """Short slices are joined until they are long enough to be seen; long ones stay alone."""
    out: list[_Block] = []
    for piece in sorted(slices, key=lambda piece: piece.start_s):
        last = out[-1] if out and len(slices) > MOST_SLICES else None
        if (
            last is not None
            and piece.kind == last.first.kind
            and last.long_s < least_s
            and max(last.end_s, piece.end_s) - last.first.start_s < 2 * least_s
        ):
            last.take(piece)
        else:
            out.append(_Block(piece, piece.end_s, piece.end_s - piece.start_s))
    return out
