"""The trace report for a terminal: the answer first, what to change last."""

from collections.abc import Sequence

from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.wrap import WIDTH, wrapped
from trainperf.reports.layout.finding_view import NO_FINDING, finding_text
from trainperf.reports.trace.rows import TraceRow
from trainperf.reports.trace.view import RankView, trace_view
from trainperf.traces.results import TraceReport


_INDENT = "  "


def render(report: TraceReport) -> str:
    """The report as plain text; of several ranks the first in detail."""
    view = trace_view(report)
    blocks = [wrapped(view.title), wrapped(view.answer, lead=_INDENT)]
    blocks += map(_table, view.tables)
    if len(view.ranks) > 1:
        blocks.append(wrapped(f"in detail: {view.ranks[0].about}", lead=_INDENT))
    for rank in view.ranks[:1]:
        blocks += _rank(rank)
    blocks.append([line for note in view.warnings for line in wrapped(note, lead="  note  ")])
    for place, finding in enumerate(view.findings, start=1):
        title, rest = finding_text(place, finding, WIDTH - len(_INDENT))
        blocks.append([f"{_INDENT}{line}" for line in (*title, *rest)])
    if not view.findings:
        blocks.append([f"{_INDENT}{NO_FINDING}"])
    written = ["\n".join(line.rstrip() for line in block) for block in blocks if block]
    return "\n\n".join(written) + "\n"


def _rank(rank: RankView) -> list[list[str]]:
    absent = [
        line
        for group in rank.missing
        for line in wrapped(f"{', '.join(group.names)}: {group.reason}", lead="  not measured  ")
    ]
    return [_rows(rank.rows), absent, *map(_table, rank.tables)]


def _rows(rows: Sequence[TraceRow]) -> list[str]:
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


def _table(table: Table) -> list[str]:
    lines = [f"{_INDENT}{line}" for line in text_table(table, WIDTH - 4)]
    notes = [line for note in table.notes for line in wrapped(note, WIDTH - 4, _INDENT)]
    return [f"{_INDENT}{line}" for line in (table.title, *lines, *notes)]
