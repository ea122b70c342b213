"""Rule about fits that ended because memory ran out."""

from trainperf.analysis.roofline.memory_savings import savings
from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.memory import MemoryLedger, OutOfMemory
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import size


_REMEDIES = {
    "activations": "a smaller micro-batch with {loop.accumulation}, shorter sequences, or "
    "torch.utils.checkpoint around the blocks",
    "optimizer state": "an optimizer that keeps less, e.g. torch.optim.Adafactor or SGD, or one "
    "sharded over ranks: ZeroRedundancyOptimizer",
    "parameters": "a smaller or a half-precision model, or one sharded over ranks: "
    "{loop.fully_sharded}",
    "gradients": "gradients sharded over ranks: {loop.fully_sharded}",
    "workspace": "CUBLAS_WORKSPACE_CONFIG=:4096:2, or a smaller micro-batch that leaves room",
}


def out_of_memory(evidence: Evidence) -> Finding | None:
    """The last thing that happened was an allocation that failed.

    The request counts for what was under way: activations in forward and backward, state in the
    optimizer.  What then is largest is named.

    Wrong where: another process held the memory, or one batch was much longer than the others.
    To confirm: the same step in `trainperf.benchmark` with half the batch; `max_memory_allocated`
    before the failure.
    """
    summary, memory = evidence.summary, evidence.documents.memory
    ended = memory.out_of_memory if memory is not None else None
    if memory is None or ended is None:
        return _unexplained(summary)
    filled = filling(memory, ended)
    blamed = "workspace" if ended.workspace else max(filled, key=lambda name: filled[name])
    saved = [f"{each.what} saves up to {size(each.size_bytes)}" for each in savings(memory)[:1]]
    return Finding(
        id="out_of_memory",
        title=f"the fit ran out of memory in {_during(ended)}: {blamed} filled it",
        advice="Make room in memory" if blamed == "workspace" else f"Shrink the {blamed}",
        evidence=(_request(ended, memory), _parts(memory), *saved),
        action=_REMEDIES[blamed].format(loop=summary.run.loop),
        confidence="high" if ended.during != "elsewhere" else "medium",
        severity="high",
        urgent=True,
        effort="hours" if blamed in ("parameters", "gradients") else "minutes",
        where=ended.where,
        confirm="the fit goes on beyond this step; trainperf report shows what is left",
    )


def filling(memory: MemoryLedger, ended: OutOfMemory) -> dict[str, int]:
    """Bytes by what they are for at the end, the failed request with what asked for it."""
    requested = ended.requested_bytes or 0
    beyond = max(0, (ended.allocated_bytes or 0) - memory.static_bytes)
    stepping = ended.during == "optimizer"
    return {
        "activations": max(memory.activations_bytes or 0, beyond) + (0 if stepping else requested),
        "optimizer state": memory.optimizer_bytes + (requested if stepping else 0),
        "parameters": memory.parameters_bytes + memory.buffers_bytes,
        "gradients": memory.gradients_bytes,
    }


def _unexplained(summary: Summary) -> Finding | None:
    if summary.run.end_reason not in ("OutOfMemoryError", "MemoryError"):
        return None
    return Finding(
        id="out_of_memory",
        title="the fit ran out of memory",
        advice="Make room in memory",
        evidence=(f"{summary.run.end_reason} ended it; what filled the memory was not measured",),
        action=_REMEDIES["activations"].format(loop=summary.run.loop),
        confidence="medium",
        severity="high",
        urgent=True,
        confirm="the fit goes on beyond this step; trainperf report shows what is left",
    )


def _during(ended: OutOfMemory) -> str:
    return {"optimizer": "the update", "elsewhere": "the loop"}.get(ended.during, ended.during)


def _request(ended: OutOfMemory, memory: MemoryLedger) -> str:
    more = f"{size(ended.requested_bytes)} more" if ended.requested_bytes else "more"
    held = f", {size(ended.allocated_bytes)} allocated at most" if ended.allocated_bytes else ""
    limit = f", of {size(memory.capacity_bytes)} in total" if memory.capacity_bytes else ""
    return f"{more} was requested{held}{limit}"


def _parts(memory: MemoryLedger) -> str:
    """What there was without the request that failed."""
    parts = {
        "parameters": memory.parameters_bytes,
        "gradients": memory.gradients_bytes,
        "optimizer state": memory.optimizer_bytes,
        "activations": memory.activations_bytes or 0,
    }
    return "held: " + ", ".join(f"{name} {size(part)}" for name, part in parts.items() if part)
