"""Rule about convolutions on channels-first images."""

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.operators.base import audited, total_s
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import share


TRACE_TIME: TraceTime = "operators"


def channels_last(evidence: Evidence) -> Finding | None:
    """Convolutions on tensor cores are given channels first, and the library reorders them.

    On a CPU the gain depends on the sizes and is mostly small: nothing is said.  The bound: those
    convolutions at their floor.

    Wrong where: a layer in between wants channels first and converts back.
    To confirm: `trainperf try --only channels_last SCRIPT`.
    """
    step = audited(evidence)
    if step is None or step.audit.device == "cpu":
        return None
    first = [row for row in step.operators if row.use.channels_last is False]
    places = {(row.use.module, row.use.line) for row in first if row.use.part == "forward"}
    rows = [
        row
        for row in step.operators
        if "convolution" in row.use.name
        and row.use.precision in ("tf32", "fp16", "bf16", "fp8")  # what tensor cores take
        and (row.use.module, row.use.line) in places
    ]
    lost = step.fraction(sum(row.excess_s for row in rows))
    spent = step.fraction(total_s(rows))
    if spent < LIMITS.notable or lost <= 0:
        return None
    return Finding(
        id="channels_last",
        title=f"convolutions on channels-first images take {share(spent)} of the step",
        advice="Put the channels last",
        action="model.to(memory_format=torch.channels_last), and the images likewise after the "
        "copy to the device",
        **step.fields(rows, lost, step.spent(rows), lines=2),
        confirm="trainperf compare BEFORE AFTER",
    )
