"""A comparison as markdown, for a pull request."""

from collections.abc import Sequence

from trainperf.comparison.results import Comparison
from trainperf.core.formatting.escape import markdown as safe
from trainperf.reports.comparison.rows import Row, answer, causes, listed, notes, rows


def render(comparisons: Sequence[Comparison]) -> str:
    """All of them, one below the other; names from users cannot open markup."""
    return "\n".join(_one(comparison) for comparison in comparisons)


def _one(comparison: Comparison) -> str:
    lines = [f"**{safe(answer(comparison))}**", ""]
    lines += [f"- {safe(note)}" for note in notes(comparison)]
    lines += [f"  - {safe(one)}" for one in listed(comparison)]
    lines += _table("after / before", rows(comparison))
    lines += _table("difference in the traces, a step", causes(comparison))
    return "\n".join(lines) + "\n"


def _table(last: str, table: Sequence[Row]) -> list[str]:
    if not table:
        return []
    cells = (
        f"| {safe(row.label)} | {row.before} | {row.after} | {row.ratio} | {row.verdict} |"
        for row in table
    )
    return ["", f"| | before | after | {last} | |", "|---|--:|--:|---|---|", *cells]
