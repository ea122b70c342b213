"""Correction of a ratio between two runs for the host's own speed.

A host that lends out its processors gives a run between half and all of their speed, often from
its first step to its last, and nothing inside the run shows it.  The same small piece of work,
timed at either end of each run, does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, mean, variance

from trainperf.core.stats.bootstrap import RatioInterval


_Z95 = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """How many times as long the same work took at the second run, with its variance."""

    log: float
    variance: float
    """Of the logarithm; large for a machine that changed its speed during a run."""

    @property
    def ratio(self) -> float:
        """Above 1: the machine was slower during the second run."""
        return math.exp(self.log)


def slowdown(before: Sequence[float], after: Sequence[float]) -> Slowdown | None:
    """From several timings of the work at each run; `None` with fewer than two."""
    if min(len(before), len(after)) < 2:
        return None
    first, second = ([math.log(value) for value in side] for side in (before, after))
    return Slowdown(log=mean(second) - mean(first), variance=_variance(first) + _variance(second))


def including(
    measured: RatioInterval, machine: Slowdown, *, lower_is_faster: bool = True
) -> RatioInterval:
    """The same ratio, its interval widened to include the ratio without the machine's slowdown.

    Steps slow down by between half and all of what the work does, so all in between is included.

    Args:
        measured: The ratio of the runs.
        machine: The machine's slowdown between them.
        lower_is_faster: Whether a slow machine makes the statistic larger.
    """
    remains = measured.ratio * math.exp(-machine.log if lower_is_faster else machine.log)
    doubt = _Z95 * math.sqrt(machine.variance)
    down = math.hypot(math.log(measured.ratio / measured.low), doubt)
    up = math.hypot(math.log(measured.high / measured.ratio), doubt)
    return replace(
        measured,
        low=min(measured.low, remains * math.exp(-down)),
        high=max(measured.high, remains * math.exp(up)),
    )


def _variance(logs: Sequence[float]) -> float:
    """Of their mean."""
    return variance(logs) / len(logs)
