"""Rule about matrix products in a slow precision."""

import math
from collections.abc import Mapping, Sequence

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.operators.base import (
    PASSES,
    AuditedStep,
    Timed,
    audited,
    launch_s,
    total_s,
)
from trainperf.core.artifacts.audit import OperatorUse, Part
from trainperf.core.findings import LIMITS, Finding, amdahl
from trainperf.core.formatting.units import share
from trainperf.core.loop_kind import LoopKind


TRACE_TIME: TraceTime = "operators"

SHORTER = ("tf32", "bf16", "fp16")
"""What fp32 products may be computed in instead, the least different first."""

_WEIGHT = {"mm": -1, "addmm": -1, "convolution": 1}
"""Which of its tensors is the weight, in products that have one; the input is before it."""

Times = Mapping[tuple[tuple[int, ...], ...], Mapping[str, float]]
"""Seconds of fused attention, forward and backward, by its shapes and precision."""

_CONVERTED: dict[Part, int] = {"forward": 2, "recompute": 1}
"""Conversions of each input of a product: to the other precision, and its gradient's back."""


def matmul_precision(evidence: Evidence) -> Finding | None:
    """Double precision, or fp32 where the chip has a much faster way to multiply.

    The bound: products at the peak of the faster precision, and with autocast half the time for
    everything else in forward and backward.  On a CPU the finding is given and ranked by a
    forecast: the arithmetic of products gets faster, calls and conversions are added, and fused
    attention takes what it took when it was timed in both.

    Wrong where: the products are small: then calls and conversions take what the arithmetic saves.
    To confirm: `trainperf try --only autocast_bf16 --only matmul_precision SCRIPT`, with its
    losses.
    """
    step = audited(evidence)
    if step is None:
        return None
    return _double(step) or _single(step, evidence)


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


def _single(step: AuditedStep, evidence: Evidence) -> Finding | None:
    peaks = step.light.chip.flops_per_s
    slow = peaks.get("fp32", 0.0)
    # Twice the fp32 peak is worth the digits (A100's TF32: eight times).
    precision = next((name for name in SHORTER if peaks.get(name, 0.0) >= 2 * slow > 0), None)
    rows = [row for row in _products(step) if row.use.precision == "fp32"]
    if precision is None or not rows:
        return None
    forecasts = step.basis == "measured"
    if forecasts:
        lost = step.fraction(_forecast_s(rows, precision, step, evidence))
    else:
        at_peak_s = sum(row.use.flops for row in rows) / peaks[precision]
        lost = step.fraction(total_s(rows) - at_peak_s)
    if lost < LIMITS.notable:
        return None
    facts = [
        f"{step.light.chip.name}: {_rate(slow)} in fp32, {_rate(peaks[precision])} in {precision}"
    ]
    if forecasts:
        facts.append(f"forecast for products of these sizes: {share(lost)} of the step saved")
    fields = step.fields(rows, lost, *facts, step.spent(rows), lines=2)
    if fields["gain_upper_bound"] is not None:
        # The action for TF32 names autocast as well.
        named = {precision, "bf16"} & peaks.keys() if precision == "tf32" else {precision}
        most = max(step.fraction(saved_at_most_s(step, each)) for each in named)
        fields["gain_upper_bound"] = amdahl(max(lost, most))
    return Finding(
        id="matmul_precision",
        title=f"fp32 products take {step.share(rows)} of the step",
        advice="Use the tensor cores" if step.audit.device == "cuda" else "Multiply in bf16",
        action=_faster_action(precision, peaks, evidence.summary.run.loop),
        **fields,
        confirm="trainperf compare BEFORE AFTER: faster, and the loss still matches",
    )


def saved_at_most_s(step: AuditedStep, precision: str) -> float:
    """What forward and backward save at most in another precision, in seconds of a step.

    Products run at the chip's peak in it.  TF32 changes nothing else; with autocast everything else
    moves half the bytes, and takes half its time.

    Raises:
        KeyError: The chip's peak in that precision is unknown.
    """
    products = _products(step)
    slow = [row for row in products if row.use.precision != precision]
    peak = step.light.chip.flops_per_s[precision]
    saved_s = total_s(slow) - sum(row.use.flops for row in slow) / peak
    if precision != "tf32":
        saved_s += (step.around_passes_s - total_s(products)) / 2
    return saved_s


def _products(step: AuditedStep) -> list[Timed]:
    """Those of forward and backward: autocast is over before the update."""
    return [row for row in step.operators if row.use.kind == "matmul" and row.use.part in PASSES]


def _forecast_s(
    rows: Sequence[Timed], precision: str, step: AuditedStep, evidence: Evidence
) -> float:
    """Seconds of a step that products on a CPU probably save; the rest of the step is as it was."""
    chip = evidence.documents.chip
    timed = {} if chip is None else {size.shapes: size.seconds for size in chip.attention}
    return sum(_saved_s(row, precision, step, timed) for row in rows)


def _saved_s(row: Timed, precision: str, step: AuditedStep, timed: Times) -> float:
    """Forecast for all its calls on a CPU: below zero where they take longer in *precision*.

    What keeps them from the peak of fp32 keeps them from that of *precision*, too: calls, threads
    that wake up, memory.  Convolutions were measured from 0.7 to 1.3 times as fast in bf16,
    whatever the peaks: they count as no gain.
    """
    chip, use = step.light.chip, row.use
    if use.is_fused_attention:
        # Forward was timed with its backward; a size that was not is no gain.
        seconds = timed.get(use.shapes[:3], {}) if use.part == "forward" else {}
        return use.calls * (seconds["fp32"] - seconds[precision]) if precision in seconds else 0.0
    convolves = use.short_name.startswith("convolution")
    arithmetic_s = 0.0 if convolves else min(use.flops / chip.flops_per_s["fp32"], row.computed_s)
    saved_s = arithmetic_s * (1 - chip.flops_per_s["fp32"] / chip.flops_per_s[precision])
    # Choosing a kernel may take longer.
    call_s = chip.product_s.get(precision, 0.0) - chip.product_s.get("fp32", 0.0)
    return saved_s - use.calls * (max(0.0, call_s) + _conversions_s(use, step))


def _conversions_s(use: OperatorUse, step: AuditedStep) -> float:
    """Of weight and input, and in backward of their gradients, for one call.

    Products without a weight (attention's) get the results of others in the same precision.
    """
    times, place = _CONVERTED.get(use.part, 0), _WEIGHT.get(use.short_name)
    if not times or place is None or len(use.shapes) < 2:  # not recorded
        return 0.0
    elements = sum(math.prod(use.shapes[index]) for index in (place - 1, place))
    # Four bytes are read and two written, or the other way round; a call, and autograd's node.
    once_s = 6 * elements / step.light.chip.memory_bytes_per_s + 2 * 2 * launch_s(step.light)
    return times * once_s


def _faster_action(precision: str, peaks: dict[str, float], loop: LoopKind) -> str:
    why = "bf16 is less than twice as fast as fp32 here" if "bf16" in peaks else "it has no bf16"
    return {
        "tf32": f'torch.set_float32_matmul_precision("high"); more with {loop.bf16}',
        "bf16": loop.bf16,
        "fp16": f"{loop.fp16}: {why}",
    }[precision]


def _rate(flops_per_s: float) -> str:
    return f"{flops_per_s / 1e12:.3g} TFLOP/s"
