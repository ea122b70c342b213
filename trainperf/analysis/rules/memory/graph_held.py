"""Rule about containers that keep the autograd graph of every step."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.memory.base import (
    DAY_S,
    graphs_held,
    growth,
    holding,
    lasts_s,
    pace,
)
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.readings import MEMORY_SLOPE_BYTES_PER_STEP


def graph_held(evidence: Evidence) -> Finding | None:
    """A container has gathered tensors that hang on a graph, about one per step or more.

    It costs memory and no time, until there is none left: so there is no gain to promise.

    Wrong where: the container is emptied later, at the end of an epoch for instance.
    To confirm: `trainperf.smoke.assert_no_graph_held` on what the step returns; the list's length
    after an epoch.
    """
    holder = graphs_held(evidence)
    if holder is None:
        return None
    summary = evidence.summary
    slope = summary.value(MEMORY_SLOPE_BYTES_PER_STEP)
    measured = summary.run.steady_steps >= LIMITS.steps and slope is not None
    grows = growth(evidence, cause_shown=True) if measured else None
    # What a graph keeps alive comes on top: by itself what is held fills the memory this late.
    per_step = holder.size_bytes / summary.run.steps
    soon = grows.soon if grows else lasts_s(evidence, per_step) <= DAY_S
    name = holder.name or f"a {holder.kind}"
    origin = (f"made at {holder.made_at}",) if holder.made_at else ()
    return Finding(
        id="graph_held",
        title=f"{name} keeps the autograd graph of every step",
        advice="Detach what is kept",
        evidence=(holding(holder), *((pace(grows),) if grows else ()), *origin),
        action=f"store value.detach() in {name}, or clear it when the step is over",
        severity="high" if soon else "low" if measured else "medium",
        urgent=soon,
        where=holder.where or holder.made_at,
        confirm="trainperf.smoke.assert_no_graph_held passes; memory_slope_bytes_per_step is 0",
    )
