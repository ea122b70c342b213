"""The table of every report, and how text and markdown lay it out.

Cells are escaped here and nowhere else: a caller hands over names as they are.  HTML has its own
layout of the same `Table` (`reports.html.components.shown`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from trainperf.core.formatting.escape import markdown, plain


UNKNOWN = "–"
"""In the cell of a figure that is not known."""

_GAP = "  "
_LEAST = 12
"""Columns of a cell of words that are kept when a row is too wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows that belong together; numbers are set to the right, words to the left."""

    title: str = ""
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    """Leading columns that are words; the others are numbers."""
    end_words: int = 0
    """Trailing columns that are words, too."""
    notes: tuple[str, ...] = ()
    """Sentences beneath the table."""

    def is_words(self, place: int) -> bool:
        """Whether the column at *place* holds words rather than numbers."""
        return place < self.words or place >= len(self.head) - self.end_words


def or_unknown(value: float | None, say: Callable[[float], str]) -> str:
    """A figure in words, or the mark of an unknown one."""
    return UNKNOWN if value is None else say(value)


def text_table(table: Table, width: int | None = None) -> list[str]:
    """The head and the rows, a line each, without title and notes.

    Where a row is wider than *width* its widest words are cut.  A number that is cut is a wrong
    number: where that is not enough the head takes two lines, and then a column of words goes.
    """
    rows = [[plain(cell) for cell in row] for row in (table.head, *table.rows)]
    words = [table.is_words(place) for place in range(len(table.head))]
    wide = _widths(rows, words, width)
    if width is not None and _total(wide) > width:
        rows = [*_on_two_lines(rows[0]), *rows[1:]]
        wide = _widths(rows, words, width)
    while width is not None and _total(wide) > width and sum(words) > 1:
        drop = max(place for place, is_words in enumerate(words) if is_words)
        rows = [[*row[:drop], *row[drop + 1 :]] for row in rows]
        del words[drop]
        wide = _widths(rows, words, width)
    if not any(rows[0]) and len(rows) > len(table.rows) + 1:
        del rows[0]
    return [_GAP.join(map(_fitted, row, wide, words)).rstrip() for row in rows]


def markdown_table(table: Table) -> str:
    """The head and the rows as a table of GitHub's markdown, without title and notes."""
    rule = ["---" if table.is_words(place) else "---:" for place in range(len(table.head))]
    rows = [[_indented(cell) for cell in row] for row in (table.head, *table.rows)]
    lines = [rows[0], rule, *rows[1:]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _indented(cell: str) -> str:
    """Markdown drops the spaces that show what is inside what."""
    return f"· {markdown(cell.lstrip(' '))}" if cell.startswith(" ") else markdown(cell)


def _on_two_lines(head: Sequence[str]) -> list[list[str]]:
    """Names of several words are broken before the last one."""
    parts = [name.rsplit(" ", 1) if " " in name else ["", name] for name in head]
    return [list(line) for line in zip(*parts, strict=True)]


def _widths(rows: Sequence[Sequence[str]], words: Sequence[bool], width: int | None) -> list[int]:
    """Columns of each cell; where a row is too wide words give way, the first column last."""
    wide = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    flexible = [place for place, is_words in enumerate(words) if is_words]
    while width is not None and _total(wide) > width:
        cuttable = [place for place in flexible if wide[place] > _LEAST]
        if not cuttable:
            break
        wide[max(cuttable, key=lambda place: (place > 0, wide[place]))] -= 1
    return wide


def _total(wide: Sequence[int]) -> int:
    return sum(wide) + len(_GAP) * (len(wide) - 1)


def _fitted(cell: str, columns: int, is_words: bool) -> str:  # noqa: FBT001 private, mapped
    if cell_len(cell) <= columns:
        gap = " " * (columns - cell_len(cell))
        return cell + gap if is_words else gap + cell
    # The end of a path says more than its beginning; of a kernel's name, or of a stack that begins
    # with its innermost frame, it is the other way.
    if "/" in cell and " ← " not in cell:
        return "…" + set_cell_size(cell[::-1], columns - 1)[::-1]
    return set_cell_size(cell, columns - 1) + "…"
