"""Check that the GradScaler skips few updates."""

from trainperf.analysis.doctor.base import Case, Outcome, not_applicable, passed, reason, unknown
from trainperf.core.formatting.units import scale_factor, share
from trainperf.core.readings import LOSS_SCALE, OVERFLOW_RATE


FAILS_ON = ("overflow",)


def overflows(case: Case) -> Outcome:
    """GradScaler does not overflow often.

    Fails on `overflow`.  Unknown without a GradScaler's counts.
    """
    summary = case.summary
    lost, scale = summary.value(OVERFLOW_RATE), summary.value(LOSS_SCALE)
    if lost is None:
        why = reason(summary, OVERFLOW_RATE)
        if "not applicable" in why or "no GradScaler" in why:
            return not_applicable(why.removeprefix("not applicable: "))
        return unknown(why, case.loop.measures["scaler"])
    at = "" if scale is None else f"loss scale {scale_factor(scale)}"
    return passed(f"{share(lost)} of the updates overflowed", at)
