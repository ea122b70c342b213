"""The trace report as markdown, for an issue or a wiki."""

from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.table import Table, markdown_table
from trainperf.reports.layout.finding_view import NO_FINDING, finding_markdown
from trainperf.reports.trace.tables import rows_table
from trainperf.reports.trace.view import RankView, trace_view
from trainperf.traces.results import TraceReport


def render(report: TraceReport) -> str:
    """The report; nothing in a name becomes markup.  Of several ranks the first in detail."""
    view = trace_view(report)
    blocks = [f"**{safe(view.title)}**", safe(view.answer)]
    blocks += map(_table, view.tables)
    if len(view.ranks) > 1:
        blocks.append(f"**in detail: {safe(view.ranks[0].about)}**")
    for rank in view.ranks[:1]:
        blocks += _rank(rank)
    blocks.append("\n".join(f"- {safe(warning)}" for warning in view.warnings))
    blocks += [
        finding_markdown(place, finding) for place, finding in enumerate(view.findings, start=1)
    ]
    if not view.findings:
        blocks.append(NO_FINDING)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _rank(rank: RankView) -> list[str]:
    absent = [
        f"- not measured: {safe(', '.join(group.names))}: {safe(group.reason)}"
        for group in rank.missing
    ]
    return [_table(rows_table(rank.rows)), "\n".join(absent), *map(_table, rank.tables)]


def _table(table: Table) -> str:
    notes = [safe(note) for note in table.notes]
    return "\n\n".join([f"*{safe(table.title)}*", markdown_table(table), *notes])
