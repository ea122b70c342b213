"""A comparison as markdown, for a pull request."""

from collections.abc import Sequence

from trainperf.comparison.results import Comparison
from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.table import markdown_table
from trainperf.reports.comparison.rows import answer, listed, notes, tables


def render(comparisons: Sequence[Comparison]) -> str:
    """All of them, one below the other; names from users cannot open markup."""
    return "\n".join(_pair(comparison) for comparison in comparisons)


def _pair(comparison: Comparison) -> str:
    lines = [f"**{safe(answer(comparison))}**", ""]
    lines += [f"- {safe(note)}" for note in notes(comparison)]
    lines += [f"  - {safe(setting)}" for setting in listed(comparison)]
    for table in tables(comparison):
        lines += [
            "",
            *([f"*{safe(table.title)}*", ""] if table.title else []),
            markdown_table(table),
        ]
    return "\n".join(lines) + "\n"
