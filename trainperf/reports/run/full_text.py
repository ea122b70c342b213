"""Everything that is known of a run, for a terminal: `report --full` shows it after the answer."""

from collections.abc import Iterator

from rich.text import Text

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.table import Table, text_table
from trainperf.reports.layout.finding_lines import finding_text
from trainperf.reports.layout.finding_view import finding_view
from trainperf.reports.layout.wrap import flow, words_of
from trainperf.reports.run.tables import tables


def full_lines(summary: Summary, width: int) -> list[Text]:
    """Tables, then every finding with all that is known of it; none wider than *width*."""
    out: list[Text] = []
    for table in tables(summary):
        out += [Text(), Text(f"  {table.title}", style="bold cyan"), *_table(table, width - 4)]
    if summary.findings:
        out += [Text(), Text("  Findings, the largest gain first", style="bold cyan")]
    for place, finding in enumerate(summary.findings, start=1):
        title, rest = finding_text(place, finding_view(finding), width - 4)
        out += [Text("    ").append(line, style="bold") for line in title]
        out += [Text(f"    {line}") for line in rest]
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return out


def _table(table: Table, width: int) -> Iterator[Text]:
    if table.rows:
        lines = text_table(table, width)
        for place, line in enumerate(lines):
            is_head = place < len(lines) - len(table.rows)
            yield Text(f"    {line}", style="dim" if is_head else "")
    for note in table.notes:
        yield from (Text("    ").append(line.plain, "dim") for line in flow(words_of(note), width))
