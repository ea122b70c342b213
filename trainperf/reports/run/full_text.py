"""Everything that is known of a run, for a terminal: `report --full` shows it after the answer."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.escape import plain
from trainperf.reports.layout.finding_view import FindingView, finding_view
from trainperf.reports.layout.table import Table
from trainperf.reports.layout.wrap import flow, words_of
from trainperf.reports.run.tables import tables


_GAP = 2
_LEAST = 12
"""Columns of a cell of words that are kept when a row is too wide."""

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
    rows = [[plain(cell) for cell in row] for row in (table.head, *table.rows)]
    words = table.words
    wide = _widths(rows, words, width)
    # A number that is cut is a wrong number: where there is no room, a column of words goes.
    while _total(wide) > width and words > 1:
        words -= 1
        rows = [[*row[:words], *row[words + 1 :]] for row in rows]
        wide = _widths(rows, words, width)
    if table.rows:
        for place, row in enumerate(rows):
            yield Text(f"    {_row(row, wide, words)}", style="" if place else "dim")
    for note in table.notes:
        yield from (Text("    ").append(line.plain, "dim") for line in flow(words_of(note), width))


def _widths(rows: Sequence[Sequence[str]], words: int, width: int) -> list[int]:
    """Columns of each cell; the widest cells of words give way where a row is too wide."""
    wide = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    while _total(wide) > width:
        widest = max(range(words), key=lambda place: wide[place])
        if wide[widest] <= _LEAST:
            break
        wide[widest] -= 1
    return wide


def _total(wide: Sequence[int]) -> int:
    return sum(wide) + _GAP * (len(wide) - 1)


def _row(row: Sequence[str], wide: Sequence[int], words: int) -> str:
    cells = []
    for place, (cell, columns) in enumerate(zip(row, wide, strict=True)):
        if cell_len(cell) > columns:
            # The end of a path says more than its beginning.
            cells.append("…" + cell[len(cell) - columns + 1 :])
        elif place < words:
            cells.append(set_cell_size(cell, columns))
        else:
            cells.append(" " * (columns - cell_len(cell)) + cell)
    return (" " * _GAP).join(cells)


def _finding(place: int, finding: FindingView, width: int) -> Iterator[Text]:
    for line in flow(words_of(f"{place}. {finding.headline}"), width):
        yield Text("    ").append(line.plain, style="bold")
    for line in flow(words_of("; ".join(finding.evidence)), width - 3):
        yield Text(f"       {line.plain}")
    for row in finding.rows:
        labels = [row.label]
        for line in flow(words_of(row.text), width - _LABEL - 3):
            yield Text(f"       {labels.pop() if labels else '':<{_LABEL}}{line.plain}")
