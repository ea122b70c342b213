"""Everything that is known of a run, for a terminal: `report --full` shows it after the answer."""

from collections.abc import Iterator

from rich.text import Text

from trainperf.analysis.summary.schema import Finding, Summary
from trainperf.core.formatting.table import Table, text_table
from trainperf.reports.layout.wrap import flow, words_of
from trainperf.reports.run.gains import effort, gain
from trainperf.reports.run.tables import tables


_LABEL = 9


def full_lines(summary: Summary, width: int) -> list[Text]:
    """Tables, then every finding with all that is known of it; none wider than *width*."""
    out: list[Text] = []
    for table in tables(summary):
        out += [Text(), Text(f"  {table.title}", style="bold cyan"), *_table(table, width - 4)]
    if summary.findings:
        out += [Text(), Text("  Findings, the largest gain first", style="bold cyan")]
    for place, finding in enumerate(summary.findings, start=1):
        out += _finding(place, finding, width - 4)
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return out


def _table(table: Table, width: int) -> Iterator[Text]:
    if table.rows:
        for place, line in enumerate(text_table(table, width)):
            yield Text(f"    {line}", style="" if place else "dim")
    for note in table.notes:
        yield from (Text("    ").append(line.plain, "dim") for line in flow(words_of(note), width))


def _finding(place: int, finding: Finding, width: int) -> Iterator[Text]:
    most = gain(finding)
    head = f"{place}. {finding.title}{f': {most}' if most else ''}"
    for line in flow(words_of(head), width):
        yield Text("    ").append(line.plain, style="bold")
    said = (
        ("", "; ".join(finding.evidence)),
        ("next", finding.action),
        ("where", finding.where),
        ("effort", effort(finding)),
        ("sure", f"{finding.confidence} confidence, {finding.severity} severity"),
        ("confirm", finding.confirm),
    )
    for label, text in said:
        labels = [label]
        for line in flow(words_of(text), width - _LABEL - 3):
            yield Text(f"       {labels.pop() if labels else '':<{_LABEL}}{line.plain}")
