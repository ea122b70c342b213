"""The report as markdown: for TensorBoard's text tab, issues and pull requests."""

from collections.abc import Iterable, Sequence

from trainperf.analysis.rules.distributed.straggler import said as lateness
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.table import Table, markdown_table
from trainperf.core.formatting.units import Scale, duration, fine_share, plural
from trainperf.reports.layout.finding_lines import finding_markdown
from trainperf.reports.layout.finding_view import finding_view
from trainperf.reports.run.headline import headline
from trainperf.reports.run.rows import (
    device,
    facts,
    ledger,
    not_there,
    phase_rows,
    progress,
    remarks,
)
from trainperf.reports.run.tables import dimension_parts, light_line, tables


def render(summary: Summary) -> str:
    """The whole report.  Names from users are escaped: none can open markup, HTML or a cell."""
    blocks = [
        f"### trainperf · {safe(summary.run.name)}",
        f"**{safe(headline(summary))}**",
        safe(_run(summary)),
        _phases(summary),
        _why(summary),
        _bullets(f"{safe(fact.name)}: {safe(fact.said)}" for fact in facts(summary)),
        _bullets(_ranks(summary)),
        _ledger(summary),
        *map(_details, tables(summary)),
        _findings(summary.findings),
        _bullets(f"note: {safe(warning)}" for warning in (*summary.warnings, *remarks(summary))),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _run(summary: Summary) -> str:
    ranks = plural(len(summary.run.ranks), "rank")
    return f"{ranks} · {device(summary)} · {progress(summary)}"


def _phases(summary: Summary) -> str:
    rows = phase_rows(summary)
    if not rows:
        return ""
    scale = Scale.fine(sum(row.seconds for row in rows))
    cells = [
        (row.label, absent, "", "")
        if (absent := not_there(summary, row))
        else (row.label, scale.say(row.seconds), fine_share(row.fraction), row.note)
        for row in rows
    ]
    head = ("phase", "time a step", "share", "note")
    return markdown_table(Table(head=head, rows=tuple(cells), end_words=1))


def _why(summary: Summary) -> str:
    spent = [] if summary.dimensions is None else dimension_parts(summary.dimensions)
    light = "" if summary.light is None else light_line(summary.light)
    return "  \n".join(
        safe(line) for line in (f"spent on {' · '.join(spent)}" if spent else "", light) if line
    )


def _ranks(summary: Summary) -> list[str]:
    return [
        f"skew: {safe(lateness(point))}"
        for point in summary.synchronisation
        if point.straggler is not None
    ]


def _ledger(summary: Summary) -> str:
    cells = tuple((name, duration(spent_s)) for name, spent_s in ledger(summary) if spent_s)
    head = ("the fit", duration(summary.run.fit_s))
    return markdown_table(Table(head=head, rows=cells)) if cells else ""


def _findings(findings: Sequence[Finding]) -> str:
    return "\n".join(
        finding_markdown(place, finding_view(finding))
        for place, finding in enumerate(findings, start=1)
    )


def _details(table: Table) -> str:
    """A heading, the table if it has rows, and what is said beneath it."""
    shown = [markdown_table(table)] if table.rows else []
    notes = [" · ".join(map(safe, table.notes))] if table.notes else []
    return "\n\n".join([f"#### {safe(table.title)}", *shown, *notes])


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
