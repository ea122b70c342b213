"""Trials as a run may leave them, planted."""

from trainperf.core.artifacts.trials import Baseline, TrialResult, Trials, in_order


AUTOCAST = TrialResult(
    id="autocast_bf16",
    kind="change",
    title="AMP in bf16",
    verdict="faster",
    speedup=1.38,
    low=1.33,
    high=1.43,
    loss_before=2.3101,
    loss_after=2.3114,
    first_step_s=0.09,
    apply='precision="bf16-mixed"',
    where="Trainer(…)",
    rules=("matmul_precision",),
    pairs=16,
    took_s=6.1,
)
FUSED = TrialResult(
    id="optimizer_fused",
    kind="change",
    title="AdamW with fused=True",
    verdict="faster",
    speedup=1.12,
    low=1.08,
    high=1.16,
    loss_before=2.31,
    loss_after=2.31,
    first_step_s=0.06,
    apply="AdamW(…, fused=True)",
    rules=("optimizer_not_fused",),
    pairs=16,
    took_s=5.0,
)
TOGETHER = TrialResult(
    id="autocast_bf16 + optimizer_fused",
    kind="change",
    title="AMP in bf16 + AdamW with fused=True",
    verdict="faster",
    speedup=1.62,
    low=1.55,
    high=1.70,
    loss_before=2.31,
    loss_after=2.3121,
    first_step_s=0.05,
    apply='precision="bf16-mixed"; AdamW(…, fused=True)',
    parts=("autocast_bf16", "optimizer_fused"),
    rules=("matmul_precision", "optimizer_not_fused"),
    pairs=16,
    took_s=5.0,
)
FREE_LOADER = TrialResult(
    id="free_loader",
    kind="ceiling",
    title="batches from memory",
    verdict="faster",
    speedup=1.25,
    low=1.20,
    high=1.31,
    rules=("data_wait",),
    pairs=16,
)
NOT_FASTER = (
    TrialResult(
        id="optimizer_foreach",
        kind="change",
        title="AdamW with foreach=True",
        verdict="equal",
        speedup=1.003,
        low=0.985,
        high=1.019,
        apply="AdamW(…, foreach=True)",
        rules=("optimizer_not_fused",),
        pairs=64,
    ),
    TrialResult(
        id="channels_last",
        kind="change",
        title="channels_last",
        verdict="slower",
        speedup=0.91,
        low=0.88,
        high=0.94,
        apply="model.to(memory_format=torch.channels_last)",
        rules=("channels_last",),
        pairs=16,
    ),
    TrialResult(
        id="compile",
        kind="change",
        title="torch.compile",
        verdict="failed",
        reason="torch._dynamo.exc.Unsupported: call to a function that cannot be traced",
    ),
    TrialResult(
        id="half_weights",
        kind="change",
        title="weights in bf16",
        verdict="loss differs",
        speedup=1.7,
        low=1.6,
        high=1.8,
        loss_before=2.31,
        loss_after=2.52,
        first_step_s=1.2,
        pairs=16,
    ),
    TrialResult(
        id="workers_2",
        kind="change",
        title="2 workers",
        verdict="undecided",
        speedup=1.02,
        low=0.6,
        high=1.7,
        pairs=8,
    ),
    TrialResult(
        id="tf32",
        kind="change",
        title="TF32",
        verdict="not applicable",
        reason="this device has no TF32",
    ),
    TrialResult(
        id="no_update",
        kind="ceiling",
        title="no optimizer update",
        verdict="equal",
        speedup=1.0,
        low=0.985,
        high=1.015,
        rules=("optimizer_not_fused",),
        pairs=16,
    ),
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


TRIED = {
    "best": tried(AUTOCAST, FUSED, TOGETHER, FREE_LOADER, *NOT_FASTER),
    "none_faster": tried(FREE_LOADER, *NOT_FASTER[:3], trying="workers_2"),
}
"""Documents whose text is compared whole."""
