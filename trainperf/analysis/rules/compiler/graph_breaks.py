"""Rule about graph breaks in compiled code."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.compiler.base import short
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import plural


def graph_breaks(evidence: Evidence) -> Finding | None:
    """Something in the code ends a graph: what comes before and after is compiled apart.

    What one graph would gain is known only once there is one: no bound.

    Wrong where: the break is between layers that take long: two graphs are then as fast as one.
    To confirm: `torch.compile(…, fullgraph=True)`; `trainperf prove` with the break removed.
    """
    document = evidence.documents.compilation
    if document is None or not document.breaks:
        return None
    first = document.breaks[0]
    places = {graph_break.where for graph_break in document.breaks}
    return Finding(
        id="graph_breaks",
        title=f"compiled code breaks at {plural(len(places), 'place')}",
        advice="Remove the graph breaks",
        evidence=(
            *(f"{each.where or 'a line'}: {short(each.reason)}" for each in document.breaks[:3]),
            f"{plural(document.graphs, 'graph')} in total; what a single one would gain is unknown",
        ),
        action=_action(first.reason),
        confidence="medium",
        severity="medium",
        effort="hours",
        where=first.where,
        confirm="torch.compile(…, fullgraph=True) raises where a break is left; then trainperf "
        "compare before after",
    )


def _action(reason: str) -> str:
    if "print" in reason or "logging" in reason:
        return "take the print out of what is compiled, or do it every n-th step outside of it"
    if ".item()" in reason or "capture_scalar_outputs" in reason:
        return "keep the value a tensor: torch.where instead of if, .item() after the step"
    if "data-dependent" in reason.lower():
        return "torch.where or torch.cond instead of a Python branch on a tensor's value"
    return "move that line out of what is compiled, or write it with torch operators"
