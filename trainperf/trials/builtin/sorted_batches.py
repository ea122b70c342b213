"""Batches of neighbours in length, each cut to its longest row."""

from trainperf.trials.padded import by_length, no_cut
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


POOL = 8
"""Batches whose rows are sorted together; a block holds whole pools, so that each block of steps
has rows of all lengths."""
TOLERANCE = 0.1
"""Of the loss: the same rows in other batches, and a mean per batch weighs them otherwise."""


def sorted_batches(training: Training) -> list[Trial]:
    """Rows of eight batches, sorted by length."""
    source, uncut = training.batches, "its rows are of one length"
    return [
        Trial(
            "sorted_batches",
            on=lambda: source.rearrange(by_length, POOL),
            off=lambda: source.rearrange(None),
            title="batches of similar length, cut to it",
            apply=(
                "DataLoader(…, batch_sampler=trainperf.remedies.BucketedBatches(lengths, "
                "batch_size)), padded to the longest row"
            ),
            group="batches",
            block_multiple=POOL,
            tolerance=TOLERANCE,
            unavailable=lambda: (
                training.no_batches or no_cut(list(source.held)[-POOL:], by_length, uncut)
            ),
        )
    ]
