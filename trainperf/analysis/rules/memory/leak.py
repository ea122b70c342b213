"""Rule about memory that grows until it is full."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.memory.base import gathered, graphs_held, growth, holding, pace
from trainperf.core.findings import Finding


def leak(evidence: Evidence) -> Finding | None:
    """What is held after a step grows, to the end, and will fill the memory.

    Judged from 300 steady steps and 30 s on: fewer cannot tell a leak from a warm-up.  Says nothing
    where a graph is known to be held: that rule knows the cause.  What gathers is named where the
    fit's end found it.

    Wrong where: a cache fills and then stops: longer runs show it.
    To confirm: the reading `memory_slope_bytes_per_step` of a run of several times the length.
    """
    grows = growth(evidence)
    if grows is None or graphs_held(evidence) is not None:
        return None
    holder = gathered(evidence, grows)
    held = holding(holder) if holder else "no container was found that holds it"
    return Finding(
        id="leak",
        title="memory grows with every step" + (f" in {holder.name}" if holder else ""),
        advice="Stop the accumulation",
        evidence=(pace(grows), held),
        action=f"clear {holder.name} after use, or keep a running sum instead of all values"
        if holder and holder.name
        else "look for tensors, arrays or batches kept in a list: "
        "trainperf.smoke.assert_no_graph_held(model)",
        confidence="high" if holder else "medium",
        severity="high" if grows.soon else "medium",
        urgent=grows.soon,
        where=holder.where if holder else "",
        confirm="memory_slope_bytes_per_step is 0 within its interval",
    )
