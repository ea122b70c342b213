"""Values logged every fifty steps, where they are logged more often."""

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, RULES = "logging_interval", ("logging",)
STEPS = 50
TITLE = f"logged every {STEPS} steps"


def logging_interval(training: Training) -> list[Trial]:
    """Blocks are shorter than the interval, so that few of them have a step that logs."""
    now = training.logging_interval()
    if now is None:
        return [cannot(ID, "the loop tells no logging interval", title=TITLE, rules=RULES)]
    if now >= STEPS:
        return [cannot(ID, f"it logs every {now} steps already", title=TITLE, rules=RULES)]
    return [
        Trial(
            ID,
            on=lambda: training.set_logging_interval(STEPS),
            off=lambda: training.set_logging_interval(now),
            title=TITLE,
            apply=f"log_every_n_steps={STEPS}",
            where="Trainer(…)",
            rules=RULES,
            group="logging",
            bounded_by="no_logging",
        )
    ]
