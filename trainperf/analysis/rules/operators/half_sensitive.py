"""Rule about losses, norms and softmax in half precision."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.operators.base import Timed, place_of
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import plural


LOSSES = frozenset(
    {
        "_log_softmax",
        "nll_loss_forward",
        "nll_loss2d_forward",
        "mse_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "smooth_l1_loss",
        "huber_loss",
        "logsumexp",
    }
)
"""Losses, and what they are made of."""

SUMS = frozenset({"_softmax", "native_layer_norm", "native_batch_norm", "native_group_norm"})
"""Operators that compute in fp32 inside, and round what they are given and return."""


def half_sensitive(evidence: Evidence) -> Finding | None:
    """The loss is computed in half precision, or, in fp16, a norm or softmax is.

    It is about what is computed, not how fast: no gain.

    Wrong where: the values stay small and few: sums of half precision are then exact enough.
    To confirm: train both for as long as you can afford and compare the losses (`trainperf
    compare`).
    """
    audit, light = evidence.documents.audit, evidence.light
    if audit is None or light is None:
        return None
    rows = [
        Timed(floor=floor, time_s=0.0)
        for floor in light.operators
        if floor.use.part == "forward" and _is_sensitive(floor.use.short_name, floor.use.dtypes)
    ]
    if not rows:
        return None
    losses = [row for row in rows if row.use.short_name in LOSSES]
    names = ", ".join(sorted({row.use.short_name for row in losses or rows}))
    kinds = "/".join(sorted({row.use.dtypes[0] for row in losses or rows}))
    calls = sum(row.use.calls for row in losses or rows)
    what = "the loss" if losses else "a norm or softmax"
    return Finding(
        id="half_sensitive",
        title=f"{what} is computed in {kinds}",
        advice=f"Compute {what} in fp32",
        evidence=(
            f"{names} in {plural(calls, 'call')} of the audited step",
            "bf16 keeps 8 bits of a number, fp16 11: small differences between losses are lost"
            if losses
            else "fp16 overflows beyond 65,504",
        ),
        action="logits.float() before the loss, or with torch.autocast: it keeps these in fp32"
        if losses
        else f"{evidence.summary.run.loop.bf16}, or in fp16: autocast keeps these in fp32",
        confidence="medium",
        severity="medium" if losses else "low",
        where=place_of(losses or rows),
        confirm="compare the loss curves; the next audit has them in fp32",
    )


def _is_sensitive(name: str, dtypes: tuple[str, ...]) -> bool:
    kind = dtypes[0] if dtypes else ""
    return (name in LOSSES and kind in ("fp16", "bf16")) or (name in SUMS and kind == "fp16")
