"""Rule about matrix products in a slow precision."""

import math

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.operators.base import AuditedStep, audited, total_s
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import count
from trainperf.core.loop_kind import LoopKind
from trainperf.core.machine.chips import Chip


TRACE_TIME: TraceTime = "operators"

SHORTER = ("tf32", "bf16", "fp16")
"""What fp32 products may be computed in instead, the least different first."""

_WEIGHT = {"mm": -1, "addmm": -1, "convolution": 1}
"""Which of its tensors is the weight, in products that have one."""


def matmul_precision(evidence: Evidence) -> Finding | None:
    """Double precision, or fp32 where the chip has a much faster way to multiply.

    The bound: the same operators at the floor of the faster precision; on a CPU with the calls and
    the conversion of the weights, which make small products slower in it.
    """
    step = audited(evidence)
    if step is None:
        return None
    return _double(step) or _single(step, evidence.summary.run.loop)


def _double(step: AuditedStep) -> Finding | None:
    rows = [row for row in step.operators if "fp64" in {row.use.precision, *row.use.dtypes}]
    # Half the bytes, and the arithmetic at the peak of fp32.
    peak, bandwidth = step.light.chip.flops_per_s.get("fp32"), step.light.chip.memory_bytes_per_s
    least_s = sum(
        max(row.use.flops / peak if peak else 0.0, row.use.memory_bytes / 2 / bandwidth)
        for row in rows
    )
    lost = step.fraction(total_s(rows) - least_s)
    if lost < LIMITS.notable:
        return None
    return Finding(
        id="matmul_precision",
        title=f"{step.share(rows)} of the step computes in double precision",
        advice="Compute in fp32",
        action="model.float(), and make batches with dtype=torch.float32: numpy's default is "
        "float64",
        **step.fields(rows, lost, step.spent(rows), lines=2),
        confirm="trainperf compare BEFORE AFTER; the next audit has no fp64",
    )


def _single(step: AuditedStep, loop: LoopKind) -> Finding | None:
    peaks = step.light.chip.flops_per_s
    slow = peaks.get("fp32")
    # Twice the fp32 peak is worth the digits (A100's TF32: eight times).
    faster = [name for name in SHORTER if slow and peaks.get(name, 0.0) >= 2 * slow]
    rows = [
        row for row in step.operators if row.use.kind == "matmul" and row.use.precision == "fp32"
    ]
    if not faster or not rows:
        return None
    best = max(faster, key=lambda name: peaks[name])
    least_s = sum(_least_s(row.use, best, step.light.chip) for row in rows)
    lost = step.fraction(total_s(rows) - least_s)
    if lost < LIMITS.notable:
        return None
    peak = f"{step.light.chip.name}: {_rate(slow or 0.0)} in fp32, {_rate(peaks[best])} in "
    return Finding(
        id="matmul_precision",
        title=f"fp32 products take {step.share(rows)} of the step",
        advice="Use the tensor cores" if step.audit.device == "cuda" else "Multiply in bf16",
        action=_faster_action(faster[0], loop),
        **step.fields(rows, lost, peak + faster[-1], step.spent(rows), lines=2),
        confirm="trainperf compare BEFORE AFTER: faster, and the loss still matches",
    )


def _least_s(use: OperatorUse, precision: str, chip: Chip) -> float:
    """All its calls in another precision: arithmetic, and on a CPU the call and the conversion.

    There choosing a kernel takes longer than a small product, and weights are converted in every
    step; inputs may be the results of operators in the same precision.
    """
    seconds = use.flops / chip.flops_per_s[precision]
    if not chip.product_s:
        return seconds
    seconds += use.calls * chip.product_s.get(precision, 0.0)
    if use.part == "forward" and use.short_name in _WEIGHT:
        weight = math.prod(use.shapes[_WEIGHT[use.short_name]])
        # Four bytes are read and two written, out of a cache or into one.
        seconds += use.calls * 6 * weight / (2 * chip.memory_bytes_per_s)
    return seconds


def _faster_action(precision: str, loop: LoopKind) -> str:
    return {
        "tf32": f'torch.set_float32_matmul_precision("high"); more with {loop.bf16}',
        "bf16": loop.bf16,
        "fp16": f"{loop.fp16}: this chip has no bf16",
    }[precision]


def _rate(flops_per_s: float) -> str:
    return f"{count(round(flops_per_s / 1e12, 1))} TFLOP/s"
