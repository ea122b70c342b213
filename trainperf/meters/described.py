"""Sentences about readings: for programs that show metrics with a line about each."""

from functools import cache

from trainperf.core.docstrings import documented
from trainperf.meters import METERS


def described(name: str, title: str = "") -> str:
    """The first sentence of the reading's definition, without its full stop.

    Args:
        name: Of the reading.
        title: Its name for people: what is said of a meter of the user's own.
    """
    return _sentences().get(name) or title or name.replace("_", " ")


@cache
def _sentences() -> dict[str, str]:
    meanings = ((meter.name, documented(meter.__doc__).means) for meter in METERS)
    return {name: means.split(". ")[0].rstrip(".") for name, means in meanings}
