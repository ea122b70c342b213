"""Rule about constants rebuilt in every step."""

from trainperf.analysis.rules.base import Evidence, TraceTime, leaves_cold_caches
from trainperf.analysis.rules.operators.base import audited, total_s
from trainperf.core.findings import LIMITS, Finding


TRACE_TIME: TraceTime = "operators"


@leaves_cold_caches
def constant_rebuilt(evidence: Evidence) -> Finding | None:
    """Masks, tables and the like are made anew in forward from nothing but numbers.

    Those numbers may differ from step to step, a length for instance: that is not seen.

    Wrong where: the numbers it is made from change between steps, a length for instance.
    To confirm: `trainperf prove` with it made once and kept (`register_buffer`).
    """
    step = audited(evidence)
    if step is None:
        return None
    rows = [row for row in step.operators if row.use.constant and row.use.part == "forward"]
    if step.fraction(total_s(rows)) < LIMITS.notable:
        return None
    lost = step.fraction(step.with_aftermath_s(rows))
    finding = Finding(
        id="constant_rebuilt",
        title=f"{step.share(rows)} of the step rebuilds constants",
        advice="Build the constants once",
        action='build it in __init__ with register_buffer("mask", …, persistent=False) for the '
        "longest input, and slice it in forward",
        **step.fields(rows, lost, f"{step.spent(rows)}, computed from numbers only"),
        confirm="trainperf compare BEFORE AFTER",
    )
    return step.refilled_bound(finding, rows, evidence.summary)
