"""A trace report in words: the same figures, names and rows for every renderer.

Text and markdown (here), HTML and the tab only lay a `TraceView` out.  Every text in it is on one
line, without control characters; escaping for markdown and HTML is left to the renderer.
"""

from collections.abc import Sequence

import msgspec

from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.table import Table, markdown_table, text_table
from trainperf.core.formatting.units import plural, step_range
from trainperf.core.formatting.wrap import WIDTH, wrapped
from trainperf.reports.layout.finding_view import (
    NO_FINDING,
    FindingView,
    finding_markdown,
    finding_text,
    finding_view,
)
from trainperf.reports.trace.rows import MissingFigures, TraceRow, missing, rows
from trainperf.reports.trace.tables import job_tables, rank_tables, rows_table
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


_INDENT = "  "


def trace_text(report: TraceReport) -> str:
    """For a terminal: the answer first, what to change last; the first rank in detail."""
    view = trace_view(report)
    blocks = [wrapped(view.title), wrapped(view.answer, lead=_INDENT)]
    blocks += map(_table_text, view.tables)
    if len(view.ranks) > 1:
        blocks.append(wrapped(f"in detail: {view.ranks[0].about}", lead=_INDENT))
    for rank in view.ranks[:1]:
        blocks += _rank_text(rank)
    blocks.append([line for note in view.warnings for line in wrapped(note, lead="  note  ")])
    for place, finding in enumerate(view.findings, start=1):
        title, rest = finding_text(place, finding, WIDTH - len(_INDENT))
        blocks.append([f"{_INDENT}{line}" for line in (*title, *rest)])
    if not view.findings:
        blocks.append([f"{_INDENT}{NO_FINDING}"])
    written = ["\n".join(line.rstrip() for line in block) for block in blocks if block]
    return "\n\n".join(written) + "\n"


def _rank_text(rank: RankView) -> list[list[str]]:
    absent = [
        line
        for group in rank.missing
        for line in wrapped(f"{', '.join(group.names)}: {group.reason}", lead="  not measured  ")
    ]
    return [_rows_text(rank.rows), absent, *map(_table_text, rank.tables)]


def _rows_text(rows: Sequence[TraceRow]) -> list[str]:
    names = [(_INDENT if row.inner else "") + row.name for row in rows]
    name_width = max(map(len, names), default=0)
    value_width = max((len(row.value) for row in rows), default=0)
    return [
        line
        for name, row in zip(names, rows, strict=True)
        for line in wrapped(
            row.note, lead=f"{_INDENT}{name:<{name_width}}  {row.value:>{value_width}}  "
        )
    ]


def _table_text(table: Table) -> list[str]:
    lines = [f"{_INDENT}{line}" for line in text_table(table, WIDTH - 4)]
    notes = [line for note in table.notes for line in wrapped(note, WIDTH - 4, _INDENT)]
    return [f"{_INDENT}{line}" for line in (table.title, *lines, *notes)]


def trace_markdown(report: TraceReport) -> str:
    """For an issue or a wiki; nothing in a name becomes markup; the first rank in detail."""
    view = trace_view(report)
    blocks = [f"**{safe(view.title)}**", safe(view.answer)]
    blocks += map(_table_markdown, view.tables)
    if len(view.ranks) > 1:
        blocks.append(f"**in detail: {safe(view.ranks[0].about)}**")
    for rank in view.ranks[:1]:
        blocks += _rank_markdown(rank)
    blocks.append("\n".join(f"- {safe(warning)}" for warning in view.warnings))
    blocks += [
        finding_markdown(place, finding) for place, finding in enumerate(view.findings, start=1)
    ]
    if not view.findings:
        blocks.append(NO_FINDING)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _rank_markdown(rank: RankView) -> list[str]:
    absent = [
        f"- not measured: {safe(', '.join(group.names))}: {safe(group.reason)}"
        for group in rank.missing
    ]
    return [
        _table_markdown(rows_table(rank.rows)),
        "\n".join(absent),
        *map(_table_markdown, rank.tables),
    ]


def _table_markdown(table: Table) -> str:
    notes = [safe(note) for note in table.notes]
    return "\n\n".join([f"*{safe(table.title)}*", markdown_table(table), *notes])
