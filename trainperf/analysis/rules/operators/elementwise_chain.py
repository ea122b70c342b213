"""Rule about unfused chains of elementwise operators."""

from collections.abc import Sequence

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.operators.attention import attention_rows
from trainperf.analysis.rules.operators.base import (
    PASSES,
    AuditedStep,
    Timed,
    audited,
    computed_s,
    is_large,
    total_s,
)
from trainperf.core.findings import LIMITS, Finding, amdahl
from trainperf.core.formatting.units import size


TRACE_TIME: TraceTime = "operators"


def elementwise_chain(evidence: Evidence) -> Finding | None:
    """Elementwise operators hand each other large results that one kernel would not write.

    What is lost: each chain could be one kernel at the speed of memory.  The bound is that of
    compiling, which may take more away than the chains: of forward and backward only products are
    left.  What belongs to eager attention, or is made of constants, has rules of its own; a chain
    of tiny operators is `launch_bound`.

    Wrong where: a fused kernel exists already where the audit sees its parts, as it runs eagerly.
    To confirm: `trainperf try --only compile SCRIPT`.
    """
    step = audited(evidence)
    if step is None:
        return None
    rows = _chained(step)
    lost = step.fraction(total_s(rows) - sum(row.floor.fused_floor_s for row in rows))
    inner = sum(row.use.inner_bytes for row in rows)
    moved = sum(row.use.moved_bytes for row in rows)
    # Share of what they move that one kernel would not: a pair hands on a third.
    if lost < LIMITS.notable or inner < 0.25 * moved:
        return None
    fields = step.fields(
        rows,
        lost,
        f"{step.spent(rows)}; {size(inner)} of the {size(moved)} they move pass between them",
        then=_near_roof(step, rows),
    )
    if fields["gain_upper_bound"] is not None:
        most = step.fraction(saved_by_compiling_s(step))
        fields["gain_upper_bound"] = amdahl(max(lost, most))
    return Finding(
        id="elementwise_chain",
        title=f"unfused elementwise operators take {step.share(rows)} of the step",
        advice="Fuse the elementwise chain",
        action=f"{evidence.summary.run.loop.compiled}, or the fused form, e.g. "
        'torch.nn.functional.gelu(x, approximate="tanh") instead of its formula',
        **fields,
        effort="hours",
        confirm="trainperf compare BEFORE AFTER",
    )


def saved_by_compiling_s(step: AuditedStep) -> float:
    """What `torch.compile` saves at most, in seconds of a step: all but products, and no Python."""
    rows = [row for row in step.operators if row.use.part in PASSES and row.use.kind == "matmul"]
    return step.around_passes_s - computed_s(rows, step)


def _chained(step: AuditedStep) -> list[Timed]:
    mine = [
        row
        for row in step.operators
        if row.use.kind == "pointwise"
        and row.use.part in PASSES
        and row.use.inner_bytes
        and not row.use.constant
        and is_large(row, step)
    ]
    others = {id(row) for row in attention_rows(step.operators)}
    return [row for row in mine if id(row) not in others]


def _near_roof(step: AuditedStep, rows: Sequence[Timed]) -> str:
    """What a better kernel of each operator by itself would bring: little, near the roof."""
    fine = [row for row in rows if row.floor.near_roof(row.time_s)]
    if step.basis == "modelled" or total_s(fine) < total_s(rows) / 2:
        return "one kernel reads each input once and writes each result once"
    return "most of them run near memory bandwidth: only fusing helps, not faster kernels"
