"""Was it the machine?  What a ratio may be once the host's own speed is taken out of it.

A host that lends its processors out gives a run between half and all of their speed, often from
its first step to its last: nothing inside the run shows it.  The same small piece of work, timed
at either end of each run, does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, mean, variance

from trainperf.core.stats.bootstrap import RatioInterval


_Z95 = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """How many times as long the same work took beside the second run, and how sure that is."""

    log: float
    variance: float
    """Of the logarithm: a machine that changed its speed during a run had neither of the two."""

    @property
    def ratio(self) -> float:
        """Above 1: the machine was slower beside the second run."""
        return math.exp(self.log)


def slowdown(before: Sequence[float], after: Sequence[float]) -> Slowdown | None:
    """From what the work took beside each run, several times; `None` where it is not known."""
    if min(len(before), len(after)) < 2:
        return None
    one, other = ([math.log(value) for value in side] for side in (before, after))
    return Slowdown(log=mean(other) - mean(one), variance=_variance(one) + _variance(other))


def including(
    found: RatioInterval, machine: Slowdown, *, lower_is_faster: bool = True
) -> RatioInterval:
    """The same ratio, its interval wide enough for what remains without the machine.

    And for all in between: steps get slower by between half and all of what the work does.

    Args:
        found: What the runs say.
        machine: What became of it between them.
        lower_is_faster: Whether a slow machine makes the statistic larger.
    """
    remains = found.ratio * math.exp(-machine.log if lower_is_faster else machine.log)
    doubt = _Z95 * math.sqrt(machine.variance)
    down = math.hypot(math.log(found.ratio / found.low), doubt)
    up = math.hypot(math.log(found.high / found.ratio), doubt)
    return replace(
        found,
        low=min(found.low, remains * math.exp(-down)),
        high=max(found.high, remains * math.exp(up)),
    )


def _variance(logs: Sequence[float]) -> float:
    """Of their mean: what the machine was like between them is anybody's guess."""
    return variance(logs) / len(logs)
