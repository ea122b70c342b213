"""Rule about copies that only reorder tensors."""

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.operators.autocast_casts import is_cast
from trainperf.analysis.rules.operators.base import PASSES, Timed, audited, total_s
from trainperf.core.findings import LIMITS, Finding


TRACE_TIME: TraceTime = "operators"


def layout_copies(evidence: Evidence) -> Finding | None:
    """`contiguous()`, `clone()` and reshapes that copy take a notable part of the step.

    Summed over the operators of the audited step. The bound: those copies are gone, and
    what their results push out of the caches stays there.

    Wrong where: the copy makes the kernels after it faster than it costs.
    To confirm: `trainperf prove` without the call; `trainperf try --only channels_last SCRIPT`.
    """
    step = audited(evidence)
    if step is None:
        return None
    rows = [row for row in step.operators if is_layout_copy(row)]
    if step.fraction(total_s(rows)) < LIMITS.notable:
        return None
    lost = step.fraction(step.with_aftermath_s(rows))
    finding = Finding(
        id="layout_copies",
        title=f"copies to another memory layout take {step.share(rows)} of the step",
        advice="Keep one memory layout",
        action="make the batch in the layout that the model wants, in the dataset; drop "
        "contiguous() and clone() where the next operator takes strides",
        **step.fields(rows, lost, step.spent(rows)),
        confirm="trainperf compare BEFORE AFTER; the next audit has fewer clone and copy_",
    )
    return step.refilled_bound(finding, rows, evidence.summary)


def is_layout_copy(row: Timed) -> bool:
    """Whether it makes the same numbers in the same dtype, elsewhere."""
    use = row.use
    if use.part not in PASSES or use.constant or is_cast(row):
        return False
    return use.short_name in ("clone", "copy_", "_to_copy", "contiguous")
