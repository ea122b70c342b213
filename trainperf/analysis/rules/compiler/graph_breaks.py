"""Rule about graph breaks in compiled code."""

import re

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.compiler.base import short
from trainperf.core.artifacts.compilation import GraphBreak
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import plural


_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\](?P<file>(?P<package>\w+).*)")
"""A line of an installed package, which is not the user's to change."""


def graph_breaks(evidence: Evidence) -> Finding | None:
    """Something in the code ends a graph: what comes before and after is compiled apart.

    What one graph would gain is known only once there is one: no bound.  Breaks in the user's own
    code come first.  Where all are in an installed package the finding is of low severity, and
    comes after all others: the line is not the user's, so it says what can be done without it.

    Wrong where: the break is between layers that take long: two graphs are then as fast as one.
    To confirm: `torch.compile(…, fullgraph=True)`; `trainperf prove` with the break removed.
    """
    document = evidence.documents.compilation
    if document is None or not document.breaks:
        return None
    breaks = sorted(document.breaks, key=lambda each: bool(_INSTALLED.search(each.where)))
    first = breaks[0]
    installed = _INSTALLED.search(first.where)
    places = plural(len({each.where for each in breaks}), "place")
    packages = dict.fromkeys(match["package"] for match in map(_match, breaks) if match)
    return Finding(
        id="graph_breaks",
        title=f"compiled code breaks at {places}"
        + (f", all inside {' and '.join(packages)}" if installed else ""),
        advice="Compile without the lines that break" if installed else "Remove the graph breaks",
        evidence=(
            *(f"{_line(each)}: {short(each.reason)}" for each in breaks[:3]),
            f"{plural(document.graphs, 'graph')} in total; what a single one would gain is unknown",
        ),
        action=_around(first, installed["package"]) if installed else _action(first.reason),
        confidence="low" if installed else "medium",
        severity="low" if installed else "medium",
        effort="hours",
        where=first.where,
        confirm="torch.compile(…, fullgraph=True) raises where a break is left; then trainperf "
        "compare before after",
    )


def _match(graph_break: GraphBreak) -> re.Match[str] | None:
    return _INSTALLED.search(graph_break.where)


def _line(graph_break: GraphBreak) -> str:
    """Of a package without the path that leads to it."""
    match = _match(graph_break)
    return match["file"] if match else graph_break.where or "a line"


def _around(graph_break: GraphBreak, package: str) -> str:
    """What can be done about a line of a package."""
    compiled = "compile the parts without it (layer.compile() for each layer)"
    if _logs(graph_break.reason):
        return (
            "add the method that logs there to torch._dynamo.config.ignore_logging_functions, or "
            f"{compiled}"
        )
    return f"{compiled}, or try another version or setting of {package}; else leave it"


def _logs(reason: str) -> bool:
    return "print" in reason or "logging" in reason


def _action(reason: str) -> str:
    if _logs(reason):
        return "take the print out of what is compiled, or do it every n-th step outside of it"
    if ".item()" in reason or "capture_scalar_outputs" in reason:
        return "keep the value a tensor: torch.where instead of if, .item() after the step"
    if "data-dependent" in reason.lower():
        return "torch.where or torch.cond instead of a Python branch on a tensor's value"
    return "move that line out of what is compiled, or write it with torch operators"
