"""Sentences about readings: for programs that show metrics with a line about each."""

from functools import cache

from trainperf.core.docstrings import documented
from trainperf.meters import METERS


@cache
def described(name: str, title: str = "") -> str:
    """The first sentence of the reading's definition, without its full stop.

    E.g. `optimizer_steps_per_s` is *Steps per second of wall time, steady steps; on several ranks
    the slowest rank's*.

    Args:
        name: Of the reading.
        title: Its name for people: what is said of a meter of the user's own.
    """
    means = (documented(meter.__doc__).means for meter in METERS if meter.name == name)
    return next(means, "").split(". ")[0].rstrip(".") or title or name.replace("_", " ")
