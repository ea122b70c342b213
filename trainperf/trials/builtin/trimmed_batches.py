"""Batches cut to their longest row, where they are padded beyond it."""

from trainperf.core.errors import ConfigError
from trainperf.trials.batch_source import Rearrangement
from trainperf.trials.padded import positions, trimmed
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE, RULES = "trimmed_batches", "batches cut to their longest row", ("padding",)
LEAST = 0.01
"""Share of the positions that must go, for it to be tried."""


def trimmed_batches(training: Training) -> list[Trial]:
    """Padding on either side, by the attention mask or else the labels.

    A model without an attention mask, or that counts positions from the left of a row padded there,
    may compute something else: its loss tells.
    """
    source = training.source
    if source is None:
        return [cannot(ID, "its batches cannot be taken over", title=TITLE, rules=RULES)]

    def why_not() -> str:
        batches = list(source.held)
        try:
            left = positions([trimmed(batch) for batch in batches])
            cuts = left <= (1 - LEAST) * positions(batches)
        except ConfigError as error:
            return str(error)
        return "" if cuts else "its batches are as wide as their longest row"

    change = Rearrangement(lambda batches: [trimmed(batch) for batch in batches])
    return [
        Trial(
            ID,
            on=lambda: source.rearrange(change),
            off=lambda: source.rearrange(None),
            title=TITLE,
            apply='tokenizer(texts, padding="longest")',
            where="collate_fn of the DataLoader",
            rules=RULES,
            group="batches",
            unavailable=why_not,
        )
    ]
