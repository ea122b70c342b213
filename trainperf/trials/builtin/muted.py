"""Ceilings of what the loop does besides training: loggers and the user's callbacks are silent."""

from collections.abc import Sequence

from trainperf.trials.training import Mutable, Training
from trainperf.trials.trial import Trial, cannot


LOGGING = ("logging", "loop", "metrics_every_batch")
CALLBACKS = ("callbacks", "metrics_every_batch")


def muted(training: Training) -> list[Trial]:
    """All logging together, each of several loggers, and each callback."""
    loggers, callbacks = training.loggers(), training.callbacks()
    several, values = loggers if len(loggers) > 1 else [], training.values_logged()
    return [
        _all([*loggers, *([values] if values is not None else [])]),
        *_each(several, "no_logger", LOGGING),
        *_each(callbacks, "no_callback", CALLBACKS),
    ]


def _all(loggers: Sequence[Mutable]) -> Trial:
    names = ", ".join(logger.name for logger in loggers)
    title = f"no logging ({names})" if names else "no logging"
    if not loggers:
        return cannot("no_logging", "it has no logger", title=title, kind="ceiling", rules=LOGGING)

    def on() -> None:
        for logger in loggers:
            logger.mute()

    def off() -> None:
        for logger in reversed(loggers):
            logger.unmute()

    return Trial("no_logging", on, off, kind="ceiling", title=title, rules=LOGGING, tolerance=None)


def _each(parts: Sequence[Mutable], prefix: str, rules: tuple[str, ...]) -> list[Trial]:
    trials: list[Trial] = []
    names = [part.name for part in parts]
    for place, part in enumerate(parts):
        again = names[:place].count(part.name)
        number = f"_{again + 1}" if again else ""
        trials.append(
            Trial(
                f"{prefix}_{part.name}{number}",
                part.mute,
                part.unmute,
                kind="ceiling",
                title=f"without {part.name}",
                rules=rules,
                tolerance=None,
            )
        )
    return trials
