"""Trials for a terminal and for markdown: the answer, the lines to write, a row per trial."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from trainperf.core.artifacts.trials import Trials, TrialVerdict
from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.table import Table, markdown_table
from trainperf.core.formatting.wrap import WIDTH, columns_of, words_of, wrapped
from trainperf.reports.layout.finding_view import NEXT
from trainperf.reports.layout.terminal import flow
from trainperf.reports.layout.trials_view import AppliedLine, TrialRow, TrialsView, trials_view


WRITE = "write"
"""Label of the lines that make the best change."""

SECTIONS = ("changes", "together", "ceilings: what leaving out the work itself would bring")

_STYLES: dict[TrialVerdict, str] = {
    "faster": "green",
    "slower": "red",
    "loss differs": "yellow",
    "failed": "red",
}
_LABEL = 7
_SPEEDUP, _INTERVAL = 6, 13
_TITLE = 28
_INDENT = " " * 4
_NUMBERS = len(_INDENT) + _TITLE + _SPEEDUP + _INTERVAL + len("nothing to gain") + 4 * 2
_NARROWEST, _WIDEST = 15, 35
"""Columns of a scale."""


def trials_text(trials: Trials) -> str:
    """As plain text, `WIDTH` columns wide."""
    return "".join(line.plain.rstrip() + "\n" for line in lines(trials))


def lines(trials: Trials, width: int = WIDTH) -> list[Text]:
    """Line by line, none wider than *width*; styles are Rich's."""
    view = trials_view(trials)
    out = [Text(view.title, style="bold cyan"), Text()]
    out += [
        Text("  ").append(line.plain, "bold") for line in flow(words_of(view.answer), width - 2)
    ]
    out += [Text(line, style="bold") for line in _written(view, width)]
    for title, rows in zip(SECTIONS, _sections(view), strict=True):
        if rows:
            out += [Text(), Text(f"  {title}"), *_rows(rows, _Scale.of(view, width), width)]
    if view.unavailable:
        out += [Text(), Text("  not applicable")]
        reasons = " · ".join(view.unavailable)
        out += [Text(line, "dim") for line in wrapped(reasons, width, _INDENT)]
    out.append(Text())
    out += [Text(line) for note in view.notes for line in wrapped(note, width, "  - ")]
    out += [Text(line, "bold") for line in wrapped(view.next, width, f"  {NEXT:<{_LABEL}}")]
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return out


def trials_markdown(trials: Trials) -> str:
    """For issues and pull requests."""
    view = trials_view(trials)
    blocks = [f"### {safe(view.title)}", f"**{safe(view.answer)}**"]
    if view.lines:
        blocks.append("\n".join(f"- {WRITE}: {safe(_with_place(line))}" for line in view.lines))
    rows = tuple(
        (row.title, row.speedup, row.interval, f"{row.verdict}: {row.note}".removesuffix(": "))
        for section in _sections(view)
        for row in section
    )
    head = ("", "speed-up", "95 % CI", "")
    if rows:
        blocks.append(markdown_table(Table(head=head, rows=rows, end_words=1)))
    notes = [*(f"not applicable: {why}" for why in view.unavailable), *view.notes]
    blocks.append("\n".join(f"- {safe(note)}" for note in [*notes, f"{NEXT}: {view.next}"]))
    return "\n\n".join(blocks) + "\n"


def _sections(view: TrialsView) -> tuple[tuple[TrialRow, ...], ...]:
    return view.changes, view.sets, view.ceilings


def _with_place(line: AppliedLine) -> str:
    return f"{line.line}  ({line.where})" if line.where else line.line


def _written(view: TrialsView, width: int) -> Iterator[str]:
    for place, line in enumerate(view.lines):
        label = "" if place else WRITE
        yield from wrapped(_with_place(line), width, f"  {label:<{_LABEL}}")


def _rows(rows: Sequence[TrialRow], scale: "_Scale | None", width: int) -> Iterator[Text]:
    """A line per trial; what is too long for it has lines of its own."""
    room = min(_TITLE, width - (_NUMBERS - _TITLE - 2))
    for row in rows:
        title, style = row.title, _STYLES.get(row.kind, "")
        if columns_of(title) > room:
            yield from (Text(line) for line in wrapped(title, width, _INDENT))
            title = ""
        text = Text(_INDENT + title + " " * (room - columns_of(title)))
        text.append(f"  {row.speedup:>{_SPEEDUP}}  {row.interval:<{_INTERVAL}}  ")
        if scale:
            text.append(scale.mark(row) + "  ", style)
        yield text.append(row.verdict, style)
        if row.note:
            yield from (Text(line, "dim") for line in wrapped(row.note, width, _INDENT + "  "))


@dataclass(frozen=True, slots=True)
class _Scale:
    """Speed-ups on a line, as fast as before in it: the same for all rows."""

    low: float
    high: float
    columns: int

    @classmethod
    def of(cls, view: TrialsView, width: int) -> "_Scale | None":
        """From the least to the most of all intervals; `None` where there is none, or no room."""
        columns = min(_WIDEST, width - _NUMBERS)
        rows = [row for section in _sections(view) for row in section]
        ends = [end for row in rows for end in (row.low, row.high) if end is not None]
        if not ends or columns < _NARROWEST:
            return None
        return cls(min(0.9, *ends), max(1.1, *ends), columns)

    def mark(self, row: TrialRow) -> str:
        """E.g. `    ┊   ├─●─┤`: the interval, and 1.00×."""
        cells = [" "] * self.columns
        if row.value is not None and row.low is not None and row.high is not None:
            first, last = self._place(row.low), self._place(row.high)
            cells[first : last + 1] = "─" * (last + 1 - first)
            cells[first], cells[last] = "├", "┤"
            cells[self._place(row.value)] = "●"
        same = self._place(1.0)
        if cells[same] == " ":
            cells[same] = "┊"
        return "".join(cells)

    def _place(self, speedup: float) -> int:
        whole = math.log(self.high / self.low)
        return round(math.log(speedup / self.low) / whole * (self.columns - 1))
