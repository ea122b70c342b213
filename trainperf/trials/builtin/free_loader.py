"""Ceiling of all that makes batches faster: they come from memory."""

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE = "free_loader", "batches from memory"
RULES = ("data_hidden", "data_wait")


def free_loader(training: Training) -> list[Trial]:
    """The last batches again and again, so that no step waits for one."""
    source = training.source
    if source is None:
        return [cannot(ID, "its batches cannot be taken over", title=TITLE, kind="ceiling")]
    return [
        Trial(
            ID,
            on=lambda: source.draw_from(source.replay(len(source.held))),
            off=lambda: source.draw_from(None),
            kind="ceiling",
            title=TITLE,
            rules=RULES,
            tolerance=None,
            warmup_steps=training.batches_ahead + 1,
        )
    ]
