"""The trace report for a terminal: the answer first, what to look at next last."""

import re
import textwrap
from collections.abc import Sequence

from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import times
from trainperf.reports.trace.rows import Row, rows, title
from trainperf.reports.trace.tables import Grid, grids
from trainperf.traces.results import TraceReport


WIDTH = 100
"""Columns of the whole report."""

_CELL = 44
_INDENT = "  "
_NO_BREAK = "\N{NO-BREAK SPACE}"
_AT_UNIT = re.compile(r"(?<=\d) (?=(ms|µs|s|min|h|%|×|[KMGT]i?B|B)\b|[%×])")
"""The space between a number and its unit, where no line ends."""


def render(report: TraceReport) -> str:
    """The report as plain text."""
    lines = [*textwrap.wrap(plain(title(report)), WIDTH), "", *_wrapped(report.answer, WIDTH)]
    blocks = [_rows(rows(report.ranks[0]))] if len(report.ranks) == 1 else []
    blocks += [_grid(grid) for grid in grids(report)]
    for block in blocks:
        lines += ["", *block]
    if report.warnings:
        lines.append("")
    for warning in report.warnings:
        lines += _wrapped(warning, WIDTH, "note  ")
    lines += ["", *_next(report)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rows(found: Sequence[Row]) -> list[str]:
    names = [("  " if row.inner else "") + row.name for row in found]
    wide = max(map(len, names))
    said = max(len(row.said) for row in found)
    lines: list[str] = []
    for name, row in zip(names, found, strict=True):
        lead = f"{name:<{wide}}  {row.said:>{said}}  "
        lines += _wrapped(row.note, WIDTH, lead)
    return lines


def _grid(grid: Grid) -> list[str]:
    """The table; the first column is on the left, numbers on the right."""
    cells = [[_short(cell) for cell in row] for row in (grid.head, *grid.rows)]
    wide = [max(len(row[place]) for row in cells) for place in range(len(grid.head))]
    body = [
        "  ".join(
            cell.ljust(wide[place]) if place in (0, len(row) - 1) else cell.rjust(wide[place])
            for place, cell in enumerate(row)
        )
        for row in cells
    ]
    return [f"{_INDENT}{grid.title}", *(f"{_INDENT * 2}{line}" for line in body)]


def _next(report: TraceReport) -> list[str]:
    """What to look at, largest gain first."""
    if not report.findings:
        return _wrapped("nothing stands out that could be removed", WIDTH, "next  ")
    lines: list[str] = []
    for place, finding in enumerate(report.findings):
        gain = finding.gain_upper_bound
        bound = f" (at most {times(gain)} faster)" if gain is not None else ""
        said = f"{finding.title}{bound}: {'; '.join(finding.evidence)}. Try: {finding.action}."
        lines += _wrapped(said, WIDTH, "next  " if place == 0 else "then  ")
    return lines


def _wrapped(text: str, width: int, lead: str = "") -> list[str]:
    hang = _INDENT + " " * len(lead)
    bound = _AT_UNIT.sub(_NO_BREAK, plain(text))
    lines = textwrap.wrap(bound, width, initial_indent=_INDENT + lead, subsequent_indent=hang)
    return [line.replace(_NO_BREAK, " ") for line in lines] or [_INDENT + lead]


def _short(text: str) -> str:
    safe = plain(text)
    return safe if len(safe) <= _CELL else safe[: _CELL - 1] + "…"
