"""Rule about an inference loop that builds a graph for gradients nobody asks for."""

from trainperf.analysis.rules.base import Evidence, setting
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import count, duration, share, size
from trainperf.core.readings import STEP_MEAN_S


def gradients_on(evidence: Evidence) -> Finding | None:
    """Autograd was on in an inference loop: every answer came with a graph.

    What the graph keeps of a call was added up, and its nodes were counted; what a node costs the
    host was timed when the loop had ended.  Memory that the next operator cannot use again comes on
    top, often many times that, and has no bound: so none is promised.

    Wrong where: gradients of the input are wanted, as for saliency maps.
    To confirm: `trainperf.benchmark.compare` of the model with and without `inference_mode`.
    """
    summary = evidence.summary
    nodes = setting(summary, "answer_graph_nodes")
    if summary.run.loop.trains or not nodes:
        return None
    kept, node_s = setting(summary, "answer_graph_bytes"), setting(summary, "graph_node_s")
    step_s = summary.value(STEP_MEAN_S)
    calls = setting(summary, "answer_calls") or 1
    evidence_ = [f"{count(nodes)} nodes per batch"]
    if calls > 1:
        evidence_ = [f"{count(nodes)} nodes per call of the model, {count(calls)} calls per batch"]
    if kept:
        evidence_[0] += f", which keep {size(kept)} until the answer is dropped"
    if node_s and step_s:
        spent_s = calls * nodes * node_s
        evidence_.append(
            f"building them takes the host about {duration(spent_s)} of {duration(step_s)} "
            f"({share(spent_s / step_s)}): {duration(node_s)} per node, timed after the loop; "
            "memory that the next operator cannot use again comes on top"
        )
    return Finding(
        id="gradients_on",
        title="a graph for gradients is built with every answer, and never used",
        advice="Answer under torch.inference_mode()",
        evidence=tuple(evidence_),
        action="with torch.inference_mode(): around the loop, or @torch.inference_mode() on the "
        "function that answers",
        confirm="this finding is gone; trainperf compare BEFORE AFTER: the step is no slower, and "
        "the memory peak lower",
    )
