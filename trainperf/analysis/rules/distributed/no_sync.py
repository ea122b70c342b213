"""Rule about all-reduces in micro-batches that do not update."""

from trainperf.analysis.rules.base import Evidence, TraceTime, setting, worst
from trainperf.analysis.rules.distributed.base import reduction_fraction, redundant
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import count, duration, share
from trainperf.core.readings import ALLREDUCE_TAIL_FRACTION, STEP_MEAN_S


TRACE_TIME: TraceTime = "communication"


def no_sync(evidence: Evidence) -> Finding | None:
    """Gradient accumulation with an all-reduce in every micro-batch: all but the last are wasted.

    The bound is their part of what reductions take at most.

    Wrong where: the gradients are needed after every micro-batch, for clipping for instance.
    To confirm: `trainperf prove` with `no_sync()` around all but the last micro-batch, and the same
    loss.
    """
    summary = evidence.summary
    extra, whole = redundant(summary), reduction_fraction(evidence, named_only=True)
    # Two micro-batches per step waste half of them.
    if extra < 0.25 or whole is None or summary.run.steady_steps < LIMITS.steps:
        return None
    lost = extra * whole
    return Finding(
        id="no_sync",
        title=f"{share(extra)} of the all-reduces are in micro-batches that do not update",
        advice="Reduce gradients once per step",
        evidence=_evidence(summary),
        action=f"with {summary.run.loop.wrapped_model}.no_sync(): around forward and backward of "
        "all micro-batches but the last",
        **costs(lost, confidence="medium"),
        confirm="allreduces_per_step in the run's configuration is 1, and the tail is shorter",
    )


def _evidence(summary: Summary) -> tuple[str, ...]:
    reduced = setting(summary, "allreduces_per_step") or 0.0
    passes = setting(summary, "micro_batches_per_step") or 0.0
    tail, step_s = worst(summary, ALLREDUCE_TAIL_FRACTION), summary.value(STEP_MEAN_S)
    fact = f"{count(reduced)} all-reduces for {count(passes)} micro-batches per step"
    if tail is None or not step_s:
        return (fact,)
    waited = f"{duration(tail * step_s)} of {duration(step_s)} per step in their tails"
    return fact, f"{waited}, the rest overlaps backward"
