"""Rule about repeated conversions between dtypes."""

from collections.abc import Sequence

import msgspec

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.operators.base import (
    PASSES,
    AuditedStep,
    Timed,
    audited,
    total_s,
)
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.loop_kind import LoopKind


TRACE_TIME: TraceTime = "operators"


def autocast_casts(evidence: Evidence) -> Finding | None:
    """Conversions take a notable part of the step: labels, masks, weights per micro-batch.

    Where most are autocast's own, once per step, to do without it is the advice: that changes every
    product, so what it gains is not bounded by the conversions.

    Summed over the operators of the audited step. The bound: those conversions are gone,
    and what their results push out of the caches stays there.

    Wrong where: the casts are of weights, once per update, that a compiled step shares.
    To confirm: `trainperf prove` with the tensor made in that precision where it is loaded.
    """
    step = audited(evidence)
    if step is None:
        return None
    rows = [row for row in step.operators if is_cast(row)]
    if step.fraction(total_s(rows)) < LIMITS.notable:
        return None
    lost = step.fraction(step.with_aftermath_s(rows))
    own = _autocasts_own(rows, step, evidence.summary)
    loop = evidence.summary.run.loop
    finding = Finding(
        id="autocast_casts",
        title=f"conversions to another dtype take {step.share(rows)} of the step",
        advice="Compare with fp32" if own else "Convert once",
        action=f"{_WITHOUT}; or {loop.bf16_weights}" if own else _action(rows, step, loop),
        **step.fields(rows, lost, f"{step.spent(rows)}: {_kinds(rows)}"),
        confirm="trainperf compare BEFORE AFTER; the next audit has fewer _to_copy",
    )
    if own:
        return msgspec.structs.replace(finding, gain_upper_bound=None, confidence="low")
    return step.refilled_bound(finding, rows, evidence.summary)


_WITHOUT = (
    "trainperf prove with and without autocast: on narrow layers its conversions cost more than "
    "its products save"
)
_HALF = ("fp16", "bf16")


def _autocasts_own(rows: Sequence[Timed], step: AuditedStep, summary: Summary) -> bool:
    """Whether most convert between fp32 and half precision under autocast, each once in a step."""
    config = summary.run.config
    on = bool(config.get("autocast")) or "mixed" in str(config.get("precision") or "")
    pairs = [(row, set(_dtypes(row))) for row in rows]
    own = [row for row, pair in pairs if "fp32" in pair and pair & set(_HALF)]
    return on and step.audit.micro_batches == 1 and 2 * total_s(own) >= total_s(rows)


def is_cast(row: Timed) -> bool:
    """Whether it makes the same numbers in another dtype."""
    use = row.use
    if use.part not in PASSES or use.constant or not use.dtypes:
        return False
    if use.short_name == "_to_copy":
        return use.result_dtype is not None and use.result_dtype != use.dtypes[0]
    return use.short_name == "copy_" and len(set(use.dtypes[:2])) == 2


def _kinds(rows: Sequence[Timed]) -> str:
    """The pairs of dtypes that weigh most."""
    weights: dict[str, float] = {}
    for row in rows:
        pair = " to ".join(_dtypes(row))
        weights[pair] = weights.get(pair, 0.0) + row.time_s
    return ", ".join(sorted(weights, key=lambda pair: -weights[pair])[:2])


def _dtypes(row: Timed) -> tuple[str, str]:
    """Before and after the conversion."""
    if row.use.short_name == "copy_":
        return row.use.dtypes[-1], row.use.dtypes[0]
    return row.use.dtypes[0], row.use.result_dtype or "another"


def _action(rows: Sequence[Timed], step: AuditedStep, loop: LoopKind) -> str:
    whole = [row for row in rows if _dtypes(row)[0] not in ("fp64", "fp32", "fp16", "bf16", "fp8")]
    if total_s(whole) >= total_s(rows) / 2:
        return (
            "keep masks and labels in the dtype they are used in: convert them in the dataset, or "
            "once in register_buffer(…)"
        )
    repeated = [row for row in rows if row.use.calls > 1]
    if step.audit.micro_batches > 1 and total_s(repeated) >= total_s(rows) / 2:
        return (
            "weights are converted in every micro-batch: fewer, larger micro-batches, or "
            f"{loop.bf16_weights}"
        )
    return "make the tensor in the dtype it is used in, where it is made, and drop .to(dtype)"
