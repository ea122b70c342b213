"""Values logged every fifty steps, where they are logged more often."""

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


STEPS = 50


def logging_interval(training: Training) -> list[Trial]:
    """Both of what the step logs and of what the loggers get.

    Blocks are shorter than the interval, so that few of them have a step that logs.
    """
    interval, values = training.logging_interval(), training.values_logged()
    now = STEPS if interval is None else interval

    def on() -> None:
        training.set_logging_interval(max(now, STEPS))
        training.set_values_interval(STEPS)

    def off() -> None:
        training.set_values_interval(1)
        training.set_logging_interval(now)

    lines = [] if values is None else [f"if batch_idx % {STEPS} == 0: {values.name}(…)"]
    lines += [training.kind.logging.format(steps=STEPS)] if now < STEPS else []
    return [
        Trial(
            "logging_interval",
            on,
            off,
            title=f"logged every {STEPS} steps",
            apply="; ".join(lines),
            group="logging",
            bounded_by="no_logging",
            unavailable={
                "the loop tells no logging interval": interval is None,
                f"it logs every {now} steps already": now >= STEPS and values is None,
            },
        )
    ]
