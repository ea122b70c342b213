"""Does every epoch begin with a wait for new workers?"""

from trainperf.evidence import Evidence
from trainperf.results import Finding
from trainperf.rules.base import LIMITS, all_steps_s, at_most, setting, severity, value
from trainperf.units import duration, share


def epoch_start(evidence: Evidence) -> Finding | None:
    """The first batches of the epochs cost much more than the others.

    Steady steps leave them out, so they show only against the value over all steps.
    """
    summary = evidence.summary
    steady, every = value(summary, "data_wait_fraction"), value(summary, "data_wait_all_fraction")
    epochs = summary.gaps.get("epoch_boundary", 0)
    if steady is None or every is None or epochs < 2 or not setting(summary, "num_workers"):
        return None
    extra = every - steady
    if extra < LIMITS.epoch_start or setting(summary, "persistent_workers"):
        return None
    return Finding(
        id="epoch_start",
        title=f"{share(extra)} of the step time is the wait for the first batches of epochs",
        advice="Keep the loader's workers",
        evidence=(
            f"data wait is {share(every)} over all steps, {share(steady)} over steady ones",
            f"{duration(extra * all_steps_s(summary) / epochs)} in each of {epochs} epochs",
        ),
        action="DataLoader(persistent_workers=True)",
        fraction=extra,
        gain_upper_bound=at_most(extra),
        confidence="medium",
        severity=severity(extra),
    )
