"""Batches of neighbours in length, each cut to its longest row."""

from trainperf.core.errors import ConfigError
from trainperf.trials.batch_source import Rearrangement
from trainperf.trials.padded import by_length, positions
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE, RULES = "sorted_batches", "batches of similar length, cut to it", ("padding",)
POOL = 8
"""Batches whose rows are sorted together; a block holds whole pools, so that each block of steps
has rows of all lengths."""
TOLERANCE = 0.1
"""Of the loss: the same rows in other batches, and a mean per batch weighs them otherwise."""
LEAST = 0.01
"""Share of the positions that must go, for it to be tried."""


def sorted_batches(training: Training) -> list[Trial]:
    """Rows of eight batches, sorted by length."""
    source = training.source
    if source is None:
        return [cannot(ID, "its batches cannot be taken over", title=TITLE, rules=RULES)]

    def why_not() -> str:
        batches = list(source.held)[-POOL:]
        try:
            left = positions(by_length(batches)) if batches else 0
            cuts = left <= (1 - LEAST) * positions(batches)
        except ConfigError as error:
            return str(error)
        return "" if cuts else "its rows are of one length"

    change = Rearrangement(by_length, POOL)
    return [
        Trial(
            ID,
            on=lambda: source.rearrange(change),
            off=lambda: source.rearrange(None),
            title=TITLE,
            apply=(
                "DataLoader(…, batch_sampler=trainperf.remedies.BucketedBatches(lengths, "
                "batch_size)), padded to the longest row"
            ),
            rules=RULES,
            group="batches",
            block_multiple=POOL,
            tolerance=TOLERANCE,
            unavailable=why_not,
        )
    ]
