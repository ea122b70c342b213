"""Rule about updates that the GradScaler skips."""

from trainperf.analysis.rules.base import Evidence
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import plural, scale_factor, share
from trainperf.core.readings import LOSS_SCALE, OVERFLOW_RATE


RATE = 0.02
"""Share of the updates; a scaler that settled skips one in its growth interval of 2,000."""


def overflow(evidence: Evidence) -> Finding | None:
    """A storm of overflows, beyond the few with which a scaler finds its scale.

    The bound is on useful updates per second: a skipped step costs what a step costs.

    Wrong where: the run is young: the scaler is still on its way down from its first scale.
    To confirm: the reading `overflow_rate` over a longer run, and `loss_scale` next to it.
    """
    summary = evidence.summary
    lost = summary.value(OVERFLOW_RATE)
    if lost is None or lost < RATE:
        return None
    steps = summary.readings[OVERFLOW_RATE].n
    if lost * steps <= 10:  # a scale that starts at 2¹⁶ may be halved so often before it fits
        return None
    scale = summary.value(LOSS_SCALE)
    return Finding(
        id="overflow",
        title=f"{share(lost)} of the updates overflow and are skipped",
        advice="Stop the overflows",
        evidence=(
            f"over {plural(steps, 'step')}",
            *((f"loss scale now {scale_factor(scale)}",) if scale is not None else ()),
        ),
        action=f"{summary.run.loop.overflows_less} where the hardware has it; else look for "
        "infinities in the loss, and clip gradients after unscaling",
        **costs(lost),
        effort="hours",
        confirm=f"trainperf report: overflows below {share(RATE)} of the updates",
    )
