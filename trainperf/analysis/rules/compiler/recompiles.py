"""Rule about repeated compilation."""

from collections import Counter

from trainperf.analysis.rules.base import Evidence, own_fit_s
from trainperf.analysis.rules.compiler.base import (
    dimension,
    excess_s,
    name_of,
    plain,
    recompiled_late,
    short,
)
from trainperf.core.artifacts.compilation import Compiled
from trainperf.core.findings import LIMITS, Finding, amdahl, severity
from trainperf.core.formatting.units import duration, plural, share


def recompiles(evidence: Evidence) -> Finding | None:
    """Guards fail step after step, and each time the step waits for the compiler.

    The share is what those steps took beyond a steady one.  Where torch has given up on a function
    it may also run slower from then on, by how much is not known: then there is no bound.

    Wrong where: the shapes settle after the steps that were recorded.
    To confirm: `TORCH_LOGS=recompiles`; the reading `recompiles` of a longer run.
    """
    summary, document = evidence.summary, evidence.documents.compilation
    late = recompiled_late(document) if document is not None else []
    steps = {graph.step for graph in late if graph.step is not None}
    # A shape that is seen to change is compiled once more, for all lengths: that is ordinary.
    if document is None or len(steps) < 2 or not own_fit_s(summary):
        return None
    lost = min(excess_s(document, summary, steps) / own_fit_s(summary), 1.0)
    if lost < LIMITS.worth:
        return None
    worst = _most_often(late)
    given_up = [graph for graph in late if graph.gave_up]
    return Finding(
        id="recompiles",
        title=f"recompilation takes {share(lost)} of the fit",
        advice="Stop the recompilations",
        evidence=(
            (
                f"{plural(len(late), 'recompilation')} in {plural(len(steps), 'step')} after the "
                f"first, {duration(lost * own_fit_s(summary))} beyond what a steady step takes"
            ),
            f"{name_of(worst)}: {short(plain(worst.reason or ''))}",
            *(
                f"torch gave up on {name_of(graph)} in step {graph.step}: new shapes run uncompiled"
                for graph in given_up[:1]
            ),
        ),
        action=_action(worst),
        fraction=lost,
        scope="fit",
        gain_upper_bound=None if given_up else amdahl(lost),
        severity=severity(lost),
        where=worst.where,
        confirm="the reading recompiles is 0 after the first steps; trainperf compare BEFORE AFTER",
    )


def _most_often(late: list[Compiled]) -> Compiled:
    """The latest recompilation of the function that has most of them."""
    often = Counter((graph.function, graph.where) for graph in late).most_common(1)[0][0]
    return [graph for graph in late if (graph.function, graph.where) == often][-1]


def _action(graph: Compiled) -> str:
    reason = plain(graph.reason or "")
    changed = dimension(reason)
    if changed is not None:
        name, dim = changed
        return (
            f"torch._dynamo.mark_dynamic({name}, {dim}) before the call, torch.compile(…, "
            "dynamic=True), or a few fixed lengths (bucketing)"
        )
    if "grad_mode" in reason or "GLOBAL_STATE" in reason:
        return "call it under one grad mode, or compile a copy for each mode"
    return (
        "keep what the guard checks the same in every step: pass a number that changes as a "
        "tensor, and leave dynamic=False out"
    )
