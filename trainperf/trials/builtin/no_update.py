"""Ceiling of all that makes the optimizer faster: it has nothing to update."""

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE = "no_update", "no optimizer update"


def no_update(training: Training) -> list[Trial]:
    """Gradients are dropped just before the optimizer would use them."""
    if not training.optimizers:
        return [cannot(ID, "no optimizer is known", title=TITLE, kind="ceiling")]
    return [
        Trial(
            ID,
            on=lambda: training.mute_update(mute=True),
            off=lambda: training.mute_update(mute=False),
            kind="ceiling",
            title=TITLE,
            rules=("optimizer_not_fused",),
            tolerance=None,
        )
    ]
