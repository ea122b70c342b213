"""GradScaler: how many optimizer updates were thrown away, and at what loss scale."""

from trainperf.meters.base import Measure, MeterEntry, Scope, latest, quotient


METERS = (
    MeterEntry(
        name="overflow_rate",
        unit="1",
        about="""Optimizer updates the GradScaler skipped over those attempted, all steps of the
        fit.

        Counted from the optimizers' own step hooks, without a host sync; right for fused
        optimizers, whose `step()` runs even when the kernel skips.  A `training_step` that returns
        `None` is not an attempt.  bf16 and fp32 use no scaler: not applicable.

        Wrong where: gradients are skipped by your own code, which no scaler counts.
        To confirm: `loss_scale` falls by the backoff factor with each.
        """,
        measure=Measure.SCALER,
        better="lower",
        scope=Scope.ALL,
        needs=("attempts", "overflows"),
        statistic=quotient,
    ),
    MeterEntry(
        name="loss_scale",
        unit="1",
        about="""The GradScaler's scale, last value read (once per fifty steps or more, without a
        sync).

        Wrong where: it is the last value read, fifty steps old or more.
        To confirm: `scaler.get_scale()` after the fit.
        """,
        measure=Measure.SCALER,
        scope=Scope.ALL,
        needs=("loss_scale",),
        statistic=latest,
    ),
)
