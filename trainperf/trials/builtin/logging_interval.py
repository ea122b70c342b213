"""Values logged every fifty steps, where they are logged more often."""

from functools import partial

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


STEPS = 50


def logging_interval(training: Training) -> list[Trial]:
    """Both of what the step logs and of what the loggers get.

    Blocks are shorter than the interval, so that few of them have a step that logs.
    """
    name, title = "logging_interval", f"logged every {STEPS} steps"
    if training.logs_every is None:
        return [cannot(name, "the loop tells no logging interval", title=title)]
    owner, setting = training.logs_every
    now = int(getattr(owner, setting))

    def choose(loggers: int, values: int) -> None:
        setattr(owner, setting, loggers)
        training.set_values_interval(values)

    lines = [f"if batch_idx % {STEPS} == 0: self.log(…)"] if training.logs_values else []
    lines += [training.kind.logging.format(steps=STEPS)] if now < STEPS else []
    return [
        Trial(
            name,
            on=partial(choose, max(now, STEPS), STEPS),
            off=partial(choose, now, 1),
            title=title,
            apply="; ".join(lines),
            group="logging",
            bounded_by="no_logging",
            unavailable={f"it logs every {now} steps already": not lines},
        )
    ]
