"""Everything that is known of a run, for a terminal: `report --full` shows it after the answer."""

from collections.abc import Iterator

from rich.text import Text

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.table import Table, text_table
from trainperf.reports.layout.finding_view import FindingView, finding_view
from trainperf.reports.layout.wrap import flow, words_of
from trainperf.reports.run.tables import tables


_LABEL = 16


def full_lines(summary: Summary, width: int) -> list[Text]:
    """Tables, then every finding with all that is known of it; none wider than *width*."""
    out: list[Text] = []
    for table in tables(summary):
        out += [Text(), Text(f"  {table.title}", style="bold cyan"), *_table(table, width - 4)]
    if summary.findings:
        out += [Text(), Text("  Findings, the largest gain first", style="bold cyan")]
    for place, finding in enumerate(summary.findings, start=1):
        out += _finding(place, finding_view(finding), width - 4)
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return out


def _table(table: Table, width: int) -> Iterator[Text]:
    if table.rows:
        for place, line in enumerate(text_table(table, width)):
            yield Text(f"    {line}", style="" if place else "dim")
    for note in table.notes:
        yield from (Text("    ").append(line.plain, "dim") for line in flow(words_of(note), width))


def _finding(place: int, finding: FindingView, width: int) -> Iterator[Text]:
    for line in flow(words_of(f"{place}. {finding.headline}"), width):
        yield Text("    ").append(line.plain, style="bold")
    for line in flow(words_of("; ".join(finding.evidence)), width - 3):
        yield Text(f"       {line.plain}")
    for row in finding.rows:
        labels = [row.label]
        for line in flow(words_of(row.text), width - _LABEL - 3):
            yield Text(f"       {labels.pop() if labels else '':<{_LABEL}}{line.plain}")
