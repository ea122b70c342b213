"""Every sample is transformed in pure Python, in the process that trains."""

from pathlib import Path

from faults.base import Script
from faults.loads import Samples, fit, loader


def transform() -> int:
    """Some hundred microseconds of work that vanish when it is done beforehand."""
    return sum(number * number for number in range(4_000))


def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(Samples(None if fixed else transform)))


SCRIPT = Script(expected=("data_wait",), train=_train, changes=("cheaper_sample",))
