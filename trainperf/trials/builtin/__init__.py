"""Built-in trials: changes that people make, and ceilings; one file each, named once here.

A file defines a function of its own name, from a training to its trials; one that does not apply
says why.
"""

from collections.abc import Callable
from dataclasses import replace

from trainperf.analysis.diagnosis.offers import OFFERS as CATALOGUE
from trainperf.core.families import load_members
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


Offer = Callable[[Training], list[Trial]]

OFFERS: tuple[Offer, ...] = tuple(
    load_members(
        __name__,
        (
            "free_loader",
            "no_update",
            "muted",
            "no_reduction",
            "no_transfer",
            "autocast",
            "matmul_precision",
            "attention",
            "attention_backend",
            "optimizer",
            "channels_last",
            "cudnn_benchmark",
            "trimmed_batches",
            "sorted_batches",
            "logging_interval",
            "workers",
            "no_checkpointing",
            "compiled",
        ),
    )
)
"""In the order in which they are tried, but for those that come late: cheap ceilings first, so that
what they leave nothing to gain is not tried."""


PACKED = cannot(
    "packed_batches",
    "only the code that makes batches can pack them: trainperf.remedies.pack in the collate "
    "function, and trainperf prove",
    title="several sequences in a row",
)
"""A change that no switch makes."""


def builtin_trials(training: Training) -> list[Trial]:
    """All that trainperf can try in a training; what does not apply says why.

    What kind each is, and which causes it is about, is said once, in the catalogue.
    """
    trials = [*(trial for offer in OFFERS for trial in offer(training)), PACKED]
    catalogue = {trial.id: next(c for c in CATALOGUE if c.covers(trial.id)) for trial in trials}
    return [
        replace(trial, kind=catalogue[trial.id].kind, rules=catalogue[trial.id].rules)
        for trial in trials
    ]
