"""Ceiling of all that makes the optimizer faster: it has nothing to update."""

from functools import partial

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


def no_update(training: Training) -> list[Trial]:
    """Gradients are dropped just before the optimizer would use them."""
    return [
        Trial(
            "no_update",
            on=partial(training.mute_update, mute=True),
            off=partial(training.mute_update, mute=False),
            title="no optimizer update",
            tolerance=None,
            unavailable="" if training.optimizers else "no optimizer is known",
        )
    ]
