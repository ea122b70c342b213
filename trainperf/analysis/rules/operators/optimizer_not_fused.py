"""Rule about updates made of many small operators."""

from trainperf.analysis.rules.base import Evidence, TraceTime, leaves_cold_caches
from trainperf.analysis.rules.operators.base import audited, total_s
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import count


TRACE_TIME: TraceTime = "operators"


@leaves_cold_caches
def optimizer_not_fused(evidence: Evidence) -> Finding | None:
    """The update takes a notable part of the step and is not one fused kernel.

    The bound: all of it is made at the speed of memory, each value read and written once.

    Wrong where: the update overlaps communication, or parameters are few and large.
    To confirm: `trainperf try --only optimizer_fused --only optimizer_foreach SCRIPT`; `--only
    no_update` is the ceiling.
    """
    step = audited(evidence)
    if step is None:
        return None
    rows = [row for row in step.operators if row.use.part == "optimizer"]
    update = [row for row in rows if row.use.kind in ("pointwise", "copy", "other")]
    if not update or any(row.use.short_name.startswith("_fused_") for row in rows):
        return None
    lost = step.fraction(total_s(update) - sum(row.floor.fused_floor_s for row in update))
    if lost < LIMITS.notable:
        return None
    calls = sum(row.use.calls for row in update)
    listed = [row for row in update if row.use.short_name.startswith("_foreach_")]
    lists = total_s(listed) >= total_s(update) / 2
    return Finding(
        id="optimizer_not_fused",
        title=f"an unfused optimizer update takes {step.share(update)} of the step",
        advice="Fuse the optimizer",
        evidence=(
            f"{step.spent(update)} in {count(calls)} operators",
            "lists of tensors (foreach)" if lists else "one tensor after the other (foreach=False)",
            step.stands_on(),
        ),
        action=evidence.summary.run.loop.fused,
        **step.costs(lost),
        confirm="trainperf compare BEFORE AFTER: phase_optimizer_s falls",
    )
