"""Ceilings of what the loop does besides training: loggers and the user's callbacks are silent."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


def muted(training: Training) -> list[Trial]:
    """All logging together, each of several loggers, and each callback."""
    loggers, every = training.loggers, training.set_values_interval
    values = Trial("self.log", partial(every, 0), partial(every, 1))
    everything = [*loggers, values] if training.logs_values else [*loggers]
    names = ", ".join(each.id for each in everything)
    silent = Trial(
        "no_logging",
        on=lambda: [each.on() for each in everything],
        off=lambda: [each.off() for each in reversed(everything)],
        title=f"no logging ({names})" if names else "no logging",
        tolerance=None,
        unavailable="" if everything else "it has no logger",
    )
    several = loggers if len(loggers) > 1 else []
    return [silent, *_each(several, "no_logger"), *_each(training.callbacks, "no_callback")]


def _each(silences: Sequence[Trial], prefix: str) -> Iterator[Trial]:
    names = [each.id for each in silences]
    for place, each in enumerate(silences):
        earlier = names[:place].count(each.id)
        name = f"{prefix}_{each.id}" + (f"_{earlier + 1}" if earlier else "")
        yield replace(each, id=name, title=f"without {each.id}", tolerance=None)
