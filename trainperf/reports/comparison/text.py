"""A comparison for a terminal: the verdict first."""

from collections.abc import Sequence

from trainperf.comparison.results import Comparison
from trainperf.core.formatting.escape import plain
from trainperf.reports.comparison.rows import Row, answer, causes, listed, notes, rows


_HEAD = Row(label="", before="before", after="after", ratio="after / before", verdict="")


def render(comparisons: Sequence[Comparison]) -> str:
    """All of them, one below the other."""
    return "\n".join(_one(comparison) for comparison in comparisons)


def _one(comparison: Comparison) -> str:
    lines = ["", f"  {plain(answer(comparison))}", ""]
    lines += [f"  {plain(note)}" for note in notes(comparison)]
    lines += [f"    {plain(one)}" for one in listed(comparison)]
    table = rows(comparison)
    if table:
        lines += ["", *_table([_HEAD, *table])]
    traced = causes(comparison)
    if traced:
        lines += ["", "  in the traces, a step", *_table(traced)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _table(table: Sequence[Row]) -> list[str]:
    wide = [max(len(cells[place]) for cells in map(_cells, table)) for place in range(4)]
    return [
        f"  {label:<{wide[0]}}  {before:>{wide[1]}}  {after:>{wide[2]}}  {ratio:<{wide[3]}}  {said}"
        for label, before, after, ratio, said in map(_cells, table)
    ]


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    return row.label, row.before, row.after, row.ratio, row.verdict
