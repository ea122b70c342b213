"""The captures of a run: its analysed traces, those without an analysis, and their files.

An analysis is a `TraceReport` as JSON in `traces/*.analysis.json`.  A trace that none of them
mentions is listed too: it can be downloaded, opened in Perfetto and given to `trainperf trace`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import msgspec

from trainperf.analysis.diagnosis.of_capture import diagnosed
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.html.figures import Axis, Frame, Mark, keys, lanes
from trainperf.core.formatting.html.markup import Markup, paragraph
from trainperf.core.formatting.html.palette import KINDS
from trainperf.core.formatting.units import Scale, duration, step_range
from trainperf.core.run_directory import ANALYSIS_SUFFIX, TRACE_SUFFIXES, TRACES, CaptureName
from trainperf.tensorboard.runs import Stamp, stamp
from trainperf.traces.capture_files import decode_report
from trainperf.traces.results import RankTrace, Slice, TraceLane, TraceReport


_LARGEST_ANALYSIS = 64 << 20
"""A report of ours has some hundred kilobytes."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Captures:
    """The captures of one run, as they were when it was looked at."""

    folder: Path
    analyses: dict[str, Stamp]
    traces: dict[str, int]
    """Trace file to its size in bytes."""

    @classmethod
    def of(cls, run: Path) -> "Captures":
        """What is there now."""
        folder = run / TRACES
        files = sorted(path for path in folder.glob("[!.]*") if path.is_file())
        return cls(
            folder=folder,
            analyses={
                path.name: stamp(path) for path in files if path.name.endswith(ANALYSIS_SUFFIX)
            },
            traces={
                path.name: path.stat().st_size
                for path in files
                if path.name.endswith(TRACE_SUFFIXES)
            },
        )

    def listed(self) -> list[CaptureEntry]:
        """Every capture, analysed or not, in the order of their steps.

        The analysis of one rank is left out once there is one of all ranks.
        """
        every = {name: self.report(name) for name in self.analyses}
        shown = {name: report for name, report in every.items() if not _joined(report, every)}
        mentioned = {file for report in shown.values() for file in _files_of(report)}
        waiting = {
            file: f"not analysed yet: trainperf trace {plain(f'{TRACES}/{file}')}"
            for file in self.traces.keys() - mentioned
        }
        entries = [self._entry(key, report) for key, report in {**shown, **waiting}.items()]
        return sorted(entries, key=lambda entry: _order(entry.key))

    def report(self, name: str) -> TraceReport | str:
        """An analysis, or why it cannot be read."""
        if self.analyses[name][2] > _LARGEST_ANALYSIS:
            return "the analysis is too large to be one of ours"
        try:
            return diagnosed(decode_report((self.folder / name).read_bytes(), TraceReport))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"the analysis cannot be read: {plain(str(error))}"
        except OSError as error:
            return f"the analysis cannot be read: {error.strerror}"

    def _entry(self, key: str, report: TraceReport | str) -> CaptureEntry:
        """Of an analysis, or of a trace without one: why there is none."""
        read = None if isinstance(report, str) else report
        files = [key] if read is None else [rank.file for rank in read.ranks]
        version = self.analyses.get(key, ("", 0, self.traces.get(key, 0), 0))[1:]
        return CaptureEntry(
            key=key,
            version="-".join(map(str, version)),
            title=_title(key),
            answer="" if read is None else plain(read.answer),
            problem=report if isinstance(report, str) else "",
            ranks=[] if read is None else [rank.rank for rank in read.ranks],
            traces=[
                {"file": file, "bytes": self.traces[file]} for file in files if file in self.traces
            ],
        )


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
    across = Axis(low=begin_s, high=end_s, unit=Scale.of(end_s - begin_s))
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


def _marks(lane: TraceLane, frame: Frame) -> list[Mark]:
    """A mark for each slice that can be seen, and for short ones together."""
    first_s, last_s = frame.across.low, frame.across.high
    inside = [piece for piece in lane.slices if piece.end_s >= first_s and piece.start_s <= last_s]
    marks = []
    for several in _together(inside, (last_s - first_s) / MOST_SLICES):
        first = several[0]
        # What overlaps or nests is not covered twice.
        ends = [first.start_s, *accumulate((piece.end_s for piece in several), max)]
        name, covered = first.name, zip(several, ends, strict=False)
        if len(several) > 1:
            covered_s = sum(max(0.0, each.end_s - max(each.start_s, end)) for each, end in covered)
            name = f"{len(several)} × {first.kind}, together {duration(covered_s)}"
        left, right = frame.x(first.start_s), frame.x(ends[-1])
        kind = first.kind if first.kind in KINDS else "other"
        label = f"{name}: {duration(ends[-1] - first.start_s)} from {duration(first.start_s)}"
        marks.append((left, right - left, f"kind-{kind}", label))
    return marks


def _together(slices: list[Slice], least_s: float) -> list[list[Slice]]:
    """Short neighbours of one kind are joined until they can be seen; long ones stay alone."""
    groups: list[list[Slice]] = []
    end_s = 0.0
    for piece in sorted(slices, key=lambda piece: piece.start_s):
        first = groups[-1][0] if groups and len(slices) > MOST_SLICES else None
        if (
            first is not None
            and piece.kind == first.kind
            and end_s - first.start_s < least_s
            and max(end_s, piece.end_s) - first.start_s < 2 * least_s
        ):
            groups[-1].append(piece)
            end_s = max(end_s, piece.end_s)
        else:
            groups.append([piece])
            end_s = piece.end_s
    return groups
