"""A comparison for a terminal: the verdict first."""

from collections.abc import Sequence

from trainperf.comparison.results import Comparison
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.table import text_table
from trainperf.core.formatting.wrap import WIDTH, wrapped
from trainperf.reports.comparison.rows import answer, listed, notes, tables


def render(comparisons: Sequence[Comparison]) -> str:
    """All of them, one below the other."""
    return "\n".join(_pair(comparison) for comparison in comparisons)


def _pair(comparison: Comparison) -> str:
    lines = ["", *wrapped(answer(comparison), WIDTH, "  "), ""]
    lines += [line for note in notes(comparison) for line in wrapped(note, WIDTH, "  - ")]
    lines += [f"      {plain(setting)}" for setting in listed(comparison)]
    for table in tables(comparison):
        title = [f"  {table.title}"] if table.title else []
        lines += ["", *title, *(f"  {line}" for line in text_table(table))]
    return "\n".join(line.rstrip() for line in lines) + "\n"
