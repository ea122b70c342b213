"""Ceiling of all that makes the exchange of gradients faster: each rank keeps its own."""

from functools import partial

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


def no_reduction(training: Training) -> list[Trial]:
    """Weights of the ranks drift apart meanwhile; each gets its own back."""
    reducer = training.data_parallel
    not_skipped = "only DistributedDataParallel lets its reduction be skipped"
    return [
        Trial(
            "no_reduction",
            on=partial(setattr, reducer, "require_backward_grad_sync", False),
            off=partial(setattr, reducer, "require_backward_grad_sync", True),
            title="gradients not reduced over the ranks",
            tolerance=None,
            unavailable={
                "one rank has nothing to reduce": not training.distributed,
                not_skipped: reducer is None,
            },
        )
    ]
