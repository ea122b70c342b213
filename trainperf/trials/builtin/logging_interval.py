"""Values logged every fifty steps, where they are logged more often."""

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, RULES = "logging_interval", ("logging", "loop")
STEPS = 50
TITLE = f"logged every {STEPS} steps"


def logging_interval(training: Training) -> list[Trial]:
    """Both of what the step logs and of what the loggers get.

    Blocks are shorter than the interval, so that few of them have a step that logs.
    """
    now, values = training.logging_interval(), training.values_logged()
    if now is None:
        return [cannot(ID, "the loop tells no logging interval", title=TITLE, rules=RULES)]
    if now >= STEPS and values is None:
        return [cannot(ID, f"it logs every {now} steps already", title=TITLE, rules=RULES)]

    def on() -> None:
        training.set_logging_interval(max(now, STEPS))
        training.set_values_interval(STEPS)

    def off() -> None:
        training.set_values_interval(1)
        training.set_logging_interval(now)

    written = [] if values is None else [f"if batch_idx % {STEPS} == 0: {values.name}(…)"]
    if now < STEPS:
        written.append(training.kind.logging.format(steps=STEPS))
    return [
        Trial(
            ID,
            on=on,
            off=off,
            title=TITLE,
            apply="; ".join(written),
            rules=RULES,
            group="logging",
            bounded_by="no_logging",
        )
    ]
