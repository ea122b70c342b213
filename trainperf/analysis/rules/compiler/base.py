"""Cost of compilation in a fit, and torch's reasons in short: shared by the rules of `compiler`."""

import re
from collections.abc import Collection

from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.compilation import Compilation, Compiled
from trainperf.core.readings import STEP_S


WORTH = 0.10
"""Share of the fit that compiling may take before the fit counts as too short for it."""

_SIZE = re.compile(r"tensor '(?P<name>.+?)' size mismatch at index (?P<dim>\d+)")
_WRAPPED = re.compile(r"\b[LG]\['(\w+)'\]")
"""How torch names a local or a global variable."""


def recompiled_late(document: Compilation) -> list[Compiled]:
    """What was compiled again after the first step that compiled anything.

    Inside that step modules of one class are compiled after one another, each for the first time.
    """
    first = min((graph.step for graph in document.compiled if graph.step is not None), default=0)
    return [graph for graph in document.recompiled if (graph.step or 0) > first]


def excess_s(document: Compilation, summary: Summary, steps: Collection[int]) -> float:
    """By how much these steps were longer than a steady one, together."""
    step_s = summary.value(STEP_S) or 0.0
    walls = [step.wall_s for step in document.steps if step.step in steps]
    return sum(max(0.0, wall_s - step_s) for wall_s in walls)


def once_s(document: Compilation, summary: Summary) -> float:
    """What compiling costs a fit in which nothing is compiled twice."""
    again = {graph.step for graph in recompiled_late(document)}
    first = {step.step for step in document.steps} - again
    between = [graph.seconds or 0.0 for graph in document.compiled if graph.step is None]
    return excess_s(document, summary, first) + sum(between)


def dimension(reason: str) -> tuple[str, int] | None:
    """The tensor and the dimension that a guard found changed, if it was that."""
    match = _SIZE.search(plain(reason))
    return (match["name"], int(match["dim"])) if match else None


def plain(reason: str) -> str:
    """Torch's words without its comments, variables by the names they have in the code."""
    return _WRAPPED.sub(r"\1", reason).split("  #", 1)[0].strip()


def short(text: str) -> str:
    """No longer than fits a line of a report."""
    return text if len(text) <= 110 else text[:109] + "…"


def name_of(graph: Compiled) -> str:
    """The function, in words."""
    return graph.function or "the compiled module"
