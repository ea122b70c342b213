"""The trace report for an issue or a wiki."""

from collections.abc import Sequence

from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.units import times
from trainperf.reports.trace.rows import rows, title
from trainperf.reports.trace.tables import grids
from trainperf.traces.results import TraceReport


def render(report: TraceReport) -> str:
    """The report as markdown; nothing in a name becomes markup."""
    parts = [f"**{safe(title(report))}**", safe(report.answer)]
    if len(report.ranks) == 1:
        found = rows(report.ranks[0])
        cells = [(("· " if row.inner else "") + row.name, row.said, row.note) for row in found]
        parts.append(_table(("where the step goes", "", ""), cells))
    for grid in grids(report):
        parts += [f"*{safe(grid.title)}*", _table(grid.head, grid.rows)]
    if report.warnings:
        parts.append("\n".join(f"- {safe(warning)}" for warning in report.warnings))
    parts.append(_findings(report))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([safe(cell) for cell in row] for row in body)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _findings(report: TraceReport) -> str:
    said = []
    for place, finding in enumerate(report.findings, start=1):
        gain = finding.gain_upper_bound
        bound = f" (at most {times(gain)} faster)" if gain is not None else ""
        said.append(
            f"{place}. **{safe(finding.title)}**{bound}  \n"
            f"   {safe('; '.join(finding.evidence))}  \n"
            f"   next: {safe(finding.action)}"
        )
    return "\n".join(said) or "Nothing stands out that could be removed."
