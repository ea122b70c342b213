"""GradScaler: how many optimizer updates were thrown away, and at what loss scale."""

from trainperf.meters.base import Measure, Meter, Scope, latest, quotient


class OverflowRate(Meter):
    """Optimizer updates the GradScaler skipped over those attempted, all steps of the fit.

    Counted from the optimizers' own step hooks, without a host sync; right for fused optimizers,
    whose `step()` runs even when the kernel skips.  A `training_step` that returns `None` is not
    an attempt.  bf16 and fp32 use no scaler: not applicable.

    Wrong where: gradients are skipped by your own code, which no scaler counts.
    To confirm: `loss_scale` falls by the backoff factor with each.
    """

    name = "overflow_rate"
    unit = "1"
    measure = Measure.SCALER
    better = "lower"
    scope = Scope.ALL
    needs = ("attempts", "overflows")
    statistic = staticmethod(quotient)


class LossScale(Meter):
    """The GradScaler's scale, last value read (once per fifty steps or more, without a sync).

    Wrong where: it is the last value read, fifty steps old or more.
    To confirm: `scaler.get_scale()` after the fit.
    """

    name = "loss_scale"
    unit = "1"
    measure = Measure.SCALER
    scope = Scope.ALL
    needs = ("loss_scale",)
    statistic = staticmethod(latest)


METERS = (
    OverflowRate(),
    LossScale(),
)
