"""Every sample is transformed in pure Python, in the process that trains."""

from pathlib import Path

from faults.base import script
from faults.loads import Samples, fit, loader


def transform() -> int:
    """Some hundred microseconds of work that vanish when it is done beforehand."""
    return sum(number * number for number in range(4_000))


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(Samples(None if fixed else transform)))
