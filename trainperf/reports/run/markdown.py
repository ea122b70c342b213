"""The report as markdown: for TensorBoard's text tab, issues and pull requests."""

from collections.abc import Iterable, Sequence
from itertools import starmap

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.table import Table, markdown_table
from trainperf.reports.layout.finding_view import finding_markdown
from trainperf.reports.run.rows import PhaseRow
from trainperf.reports.run.run_view import RunView, run_view
from trainperf.reports.run.tables import tables


def render(summary: Summary) -> str:
    """The whole report.  Names from users are escaped: none can open markup, HTML or a cell."""
    view = run_view(summary)
    blocks = [
        f"### trainperf · {safe(view.name)}",
        f"**{safe(view.headline)}**",
        safe(f"{view.about} · {view.progress}"),
        _phases(view.phases),
        "  \n".join(map(safe, view.why)),
        _bullets(f"{fact.name}: {fact.value}" for fact in view.facts),
        _bullets([*(f"skew: {late}" for late in view.late), *view.ranks_lost]),
        _fit(view),
        *map(_details, tables(summary)),
        "\n".join(starmap(finding_markdown, enumerate(view.findings, start=1))),
        _bullets(f"note: {note}" for note in (*view.warnings, *view.remarks)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _phases(phases: Sequence[PhaseRow]) -> str:
    rows = tuple(
        (row.label, *((row.absent, "", "") if row.absent else (row.time, row.share, row.note)))
        for row in phases
    )
    head = ("phase", "time per step", "share", "note")
    return markdown_table(Table(head=head, rows=rows, end_words=1)) if rows else ""


def _fit(view: RunView) -> str:
    rows = tuple((part.name, part.value) for part in view.fit)
    return (
        markdown_table(Table(head=(f"the {view.whole}", view.fit_time), rows=rows)) if rows else ""
    )


def _details(table: Table) -> str:
    """A heading, the table if it has rows, and its notes."""
    shown = [markdown_table(table)] if table.rows else []
    notes = [" · ".join(map(safe, table.notes))] if table.notes else []
    return "\n\n".join([f"#### {safe(table.title)}", *shown, *notes])


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {safe(item)}" for item in items)
