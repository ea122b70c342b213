"""Ceiling of all that makes batches faster: they come from memory."""

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


def free_loader(training: Training) -> list[Trial]:
    """The last batches again and again, so that no step waits for one."""
    source = training.batches
    workers = getattr(source.loader, "num_workers", 0)
    ahead = workers * (getattr(source.loader, "prefetch_factor", None) or 2)
    return [
        Trial(
            "free_loader",
            on=lambda: source.draw_from(source.replay(len(source.held))),
            off=lambda: source.draw_from(None),
            title="batches from memory",
            tolerance=None,
            warmup_steps=ahead + 1,
            unavailable=training.no_batches,
        )
    ]
