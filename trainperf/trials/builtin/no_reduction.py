"""Ceiling of all that makes the exchange of gradients faster: each rank keeps its own."""

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE = "no_reduction", "gradients not reduced over the ranks"
RULES = ("straggler", "no_sync", "allreduce_tail")


def no_reduction(training: Training) -> list[Trial]:
    """Weights of the ranks drift apart meanwhile; each gets its own back."""
    why = "" if training.distributed else "one rank has nothing to reduce"
    if not why and training.data_parallel is None:
        why = "only DistributedDataParallel lets its reduction be skipped"
    if why:
        return [cannot(ID, why, title=TITLE, kind="ceiling", rules=RULES)]
    return [
        Trial(
            ID,
            on=lambda: training.set_reduction(on=False),
            off=lambda: training.set_reduction(on=True),
            kind="ceiling",
            title=TITLE,
            rules=RULES,
            tolerance=None,
        )
    ]
