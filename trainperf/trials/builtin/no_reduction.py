"""Ceiling of all that makes the exchange of gradients faster: each rank keeps its own."""

from functools import partial

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


def no_reduction(training: Training) -> list[Trial]:
    """Weights of the ranks drift apart meanwhile; each gets its own back."""
    not_skipped = "only DistributedDataParallel lets its reduction be skipped"
    return [
        Trial(
            "no_reduction",
            on=partial(training.set_reduction, on=False),
            off=partial(training.set_reduction, on=True),
            title="gradients not reduced over the ranks",
            tolerance=None,
            unavailable={
                "one rank has nothing to reduce": not training.distributed,
                not_skipped: training.data_parallel is None,
            },
        )
    ]
