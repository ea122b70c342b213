"""A trace report in words: the same figures, names and rows for every renderer.

Text, markdown, HTML and the tab only lay a `TraceView` out.  Every text in it is on one line,
without control characters; escaping for markdown and HTML is left to the renderer.
"""

from collections.abc import Sequence

import msgspec

from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import plural, step_range
from trainperf.reports.layout.finding_view import FindingView, finding_view
from trainperf.reports.trace.rows import MissingFigures, TraceRow, missing, rows
from trainperf.reports.trace.tables import job_tables, rank_tables
from trainperf.traces.results import RankTrace, TraceReport


class RankView(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of one rank."""

    place: int
    """Its place in the analysis: ranks may be unknown or there twice."""
    label: str
    """E.g. `rank 3`."""
    about: str
    """The file, the rank, the device, the steps."""
    rows: tuple[TraceRow, ...]
    """Where its mean step goes."""
    missing: tuple[MissingFigures, ...]
    tables: tuple[Table, ...]
    has_picture: bool


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    """What every renderer shows of a capture, in this order."""

    title: str
    answer: str
    tables: tuple[Table, ...]
    """About all ranks."""
    ranks: tuple[RankView, ...]
    warnings: tuple[str, ...]
    findings: tuple[FindingView, ...]


def trace_view(report: TraceReport) -> TraceView:
    """Put a trace, or the traces of all ranks, into words."""
    return TraceView(
        title=f"trainperf trace · {_about(report.ranks)}",
        answer=plain(report.answer),
        tables=job_tables(report),
        ranks=tuple(_rank(place, rank) for place, rank in enumerate(report.ranks)),
        warnings=tuple(map(plain, report.warnings)),
        findings=tuple(map(finding_view, report.findings)),
    )


def _rank(place: int, rank: RankTrace) -> RankView:
    return RankView(
        place=place,
        label="rank unknown" if rank.rank is None else f"rank {rank.rank}",
        about=_about([rank]),
        rows=rows(rank),
        missing=missing(rank),
        tables=rank_tables(rank),
        has_picture=any(lane.slices for lane in rank.lanes),
    )


def _about(ranks: Sequence[RankTrace]) -> str:
    """The file or the number of traces, the rank, the device, the steps."""
    if not ranks:
        return "no trace"
    first = ranks[0]
    what, number = first.file, "" if first.rank is None else f"rank {first.rank}"
    if len(ranks) > 1:
        what, number = plural(len(ranks), "trace"), ""
    device = first.device or ("GPU" if first.device_worked else "no device")
    numbers = sorted({step.step for rank in ranks for step in rank.steps})
    steps = plural(len(numbers), "step")
    if first.step_source == "ProfilerStep" and numbers:
        steps += f" ({step_range(numbers[0], numbers[-1]).split(maxsplit=1)[1]})"
    return plain(" · ".join(part for part in (what, number, device, steps) if part))
