"""Trials as a run may leave them, planted: every verdict once, a set, and ceilings."""

from typing import Any

from trainperf.core.artifacts.trials import (
    Baseline,
    TrialKind,
    TrialResult,
    Trials,
    TrialVerdict,
    in_order,
)


def trial(
    id_: str,
    verdict: TrialVerdict,
    speedup: float | None = None,
    *,
    kind: TrialKind = "change",
    **facts: Any,
) -> TrialResult:
    """A trial measured to three per cent either way; its title is its id."""
    if speedup is not None:
        facts = {"low": speedup * 0.97, "high": speedup * 1.03, "pairs": 16, **facts}
    return TrialResult(
        id=id_, kind=kind, verdict=verdict, speedup=speedup, **{"title": id_, **facts}
    )


def tried(*results: TrialResult, trying: str = "") -> Trials:
    """A document of these results."""
    return Trials(
        baseline=Baseline(step_s=0.0512, blocks=184),
        trials=in_order(list(results)),
        planned=len(results) + bool(trying),
        trying=trying,
        script="train.py --lr 3e-4",
        restored="weights, buffers, gradients, optimizer, random generators",
        took_s=96.0,
    )


AUTOCAST = trial(
    "autocast_bf16",
    "faster",
    1.38,
    low=1.33,
    high=1.43,
    title="AMP in bf16",
    loss_before=2.3101,
    loss_after=2.3114,
    memory_before=3_100 << 20,
    memory_after=2_200 << 20,
    first_step_s=0.09,
    apply='precision="bf16-mixed"',
    where="Trainer(…)",
    rules=("matmul_precision",),
)
FUSED = trial(
    "optimizer_fused",
    "faster",
    1.12,
    low=1.08,
    high=1.16,
    title="AdamW with fused=True",
    loss_before=2.31,
    loss_after=2.31,
    apply="AdamW(…, fused=True)",
    rules=("optimizer_not_fused",),
)
TOGETHER = trial(
    "autocast_bf16 + optimizer_fused",
    "faster",
    1.62,
    low=1.55,
    high=1.70,
    title="AMP in bf16 + AdamW with fused=True",
    loss_before=2.31,
    loss_after=2.3121,
    apply='precision="bf16-mixed"; AdamW(…, fused=True)',
    parts=("autocast_bf16", "optimizer_fused"),
    rules=("matmul_precision", "optimizer_not_fused"),
)
FREE_LOADER = trial(
    "free_loader",
    "faster",
    1.25,
    low=1.20,
    high=1.31,
    kind="ceiling",
    title="batches from memory",
    rules=("data_wait",),
)
NOT_FASTER = (
    trial(
        "optimizer_foreach",
        "equal",
        1.003,
        low=0.985,
        high=1.019,
        title="AdamW with foreach=True",
        apply="AdamW(…, foreach=True)",
        rules=("optimizer_not_fused",),
    ),
    trial(
        "channels_last",
        "slower",
        0.91,
        apply="model.to(memory_format=torch.channels_last)",
        rules=("layout_copies",),
    ),
    trial(
        "compile",
        "failed",
        title="torch.compile",
        reason="torch._dynamo.exc.Unsupported: call to a function that cannot be traced",
    ),
    trial(
        "half_weights",
        "loss differs",
        1.7,
        low=1.6,
        high=1.8,
        title="weights in bf16",
        loss_before=2.31,
        loss_after=2.52,
        first_step_s=1.2,
    ),
    trial("workers_2", "undecided", 1.02, low=0.6, high=1.7, title="2 workers", pairs=8),
    trial("tf32", "not applicable", title="TF32", reason="this device has no TF32"),
    trial(
        "no_update",
        "equal",
        1.0,
        low=0.985,
        high=1.015,
        kind="ceiling",
        title="no optimizer update",
        rules=("optimizer_not_fused",),
    ),
)

TRIED = {
    "best": tried(AUTOCAST, FUSED, TOGETHER, FREE_LOADER, *NOT_FASTER),
    "none_faster": tried(FREE_LOADER, *NOT_FASTER[:3], trying="workers_2"),
}
"""Documents whose text is compared whole."""
