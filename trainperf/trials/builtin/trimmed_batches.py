"""Batches cut to their longest row, where they are padded beyond it."""

from trainperf.trials.padded import all_trimmed, no_cut
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


def trimmed_batches(training: Training) -> list[Trial]:
    """Padding on either side, by the attention mask or else the labels.

    A model without an attention mask, or that counts positions from the left of a row padded there,
    may compute something else: its loss tells.
    """
    source, uncut = training.batches, "its batches are as wide as their longest row"
    return [
        Trial(
            "trimmed_batches",
            on=lambda: source.rearrange(all_trimmed),
            off=lambda: source.rearrange(None),
            title="batches cut to their longest row",
            apply='tokenizer(texts, padding="longest")',
            where="collate_fn of the DataLoader",
            group="batches",
            unavailable=lambda: training.no_batches or no_cut(source.held, all_trimmed, uncut),
        )
    ]
