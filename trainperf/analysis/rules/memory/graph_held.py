"""Rule about containers that keep the autograd graph of every step."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.memory.base import graphs_held, growth, holding, pace
from trainperf.core.findings import Finding


def graph_held(evidence: Evidence) -> Finding | None:
    """A container has gathered tensors that hang on a graph, about one per step or more.

    It costs memory and no time, until there is none left: so there is no gain to promise.
    """
    holder = graphs_held(evidence)
    if holder is None:
        return None
    grows = growth(evidence)
    name = holder.name or f"a {holder.kind}"
    origin = (f"made at {holder.made_at}",) if holder.made_at else ()
    return Finding(
        id="graph_held",
        title=f"{name} keeps the autograd graph of every step",
        advice="Detach what is kept",
        evidence=(holding(holder), *((pace(grows),) if grows else ()), *origin),
        action=f"store value.detach() in {name}, or clear it when the step is over",
        severity="high" if grows else "low",
        urgent=grows is not None,
        where=holder.where or holder.made_at,
        confirm="trainperf.smoke.assert_no_graph_held passes; memory_slope_bytes_per_step is 0",
    )
