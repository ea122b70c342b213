"""Ceilings of what the loop does besides training: loggers and the user's callbacks are silent."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from trainperf.trials.training import Mutable, Training
from trainperf.trials.trial import Trial


def muted(training: Training) -> list[Trial]:
    """All logging together, each of several loggers, and each callback."""
    loggers, every = training.loggers, training.set_values_interval
    values = Mutable("self.log", partial(every, 0), partial(every, 1))
    everything = [*loggers, values] if training.logs_values else [*loggers]
    names = ", ".join(each.name for each in everything)
    silent = Trial(
        "no_logging",
        on=lambda: [each.mute() for each in everything],
        off=lambda: [each.unmute() for each in reversed(everything)],
        title=f"no logging ({names})" if names else "no logging",
        tolerance=None,
        unavailable="" if everything else "it has no logger",
    )
    several = loggers if len(loggers) > 1 else []
    return [silent, *_each(several, "no_logger"), *_each(training.callbacks, "no_callback")]


def _each(parts: Sequence[Mutable], prefix: str) -> Iterator[Trial]:
    alike = Counter[str]()
    for part in parts:
        alike[part.name] += 1
        number = f"_{alike[part.name]}" if alike[part.name] > 1 else ""
        name = f"{prefix}_{part.name}{number}"
        yield Trial(name, part.mute, part.unmute, title=f"without {part.name}", tolerance=None)
