"""Speed-up of a change that is switched on and off in one process, from blocks that take turns.

Neighbouring blocks meet the same machine, so each pair of them gives one ratio.  The interval is
looked at after 8, 16, 32, … pairs and once when the time is over; each look has an equal part of
the error (Bonferroni), so all of them together are right with 95 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.core.artifacts.trials import NEARLY_NOTHING
from trainperf.core.stats.bootstrap import trimmed_mean
from trainperf.core.stats.sequential import ALPHA
from trainperf.core.stats.student import student_quantile
from trainperf.core.stats.verdict import SpeedVerdict, verdict_of


LOOKS = (8, 16, 32, 64, 128)
"""Pairs after which the interval is looked at; the last is the end."""

INSTANCE = 0.005
"""Standard deviation of the log speed-up that no number of pairs removes: where memory happens to
lie in this one process."""

PRECISE = 0.04
"""Half the width of an interval, as a logarithm, that is good enough once the verdict is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedSpeedup:
    """A speed-up with its interval."""

    speedup: float
    low: float
    high: float
    pairs: int

    @property
    def verdict(self) -> SpeedVerdict:
        """Faster, slower, equal or undecided."""
        return verdict_of(self.low, self.high)

    @property
    def decided(self) -> bool:
        """Whether more pairs would change nothing that matters.

        Either hardly anything can be gained, be it slower or undecided; or it is faster, and the
        number is good enough.
        """
        if self.high <= NEARLY_NOTHING:
            return True
        return self.verdict == "faster" and math.log(self.high / self.low) <= 2 * PRECISE


def switched_speedup(off_ns: Sequence[float], on_ns: Sequence[float]) -> SwitchedSpeedup:
    """Speed-up from the time per unit of work in each block, in pairs of neighbours.

    The estimate is the mean log ratio, trimmed by a tenth at either end from ten pairs on, with
    Yuen's standard error.

    Args:
        off_ns: Of the blocks without the change, two at least.
        on_ns: Of the blocks with it, each next to the one at its place in *off_ns*.

    Raises:
        ValueError: Fewer than two pairs, or sides of different length.
    """
    log_ratios = [math.log(off / on) for off, on in zip(off_ns, on_ns, strict=True)]
    number = len(log_ratios)
    if number < 2:
        raise ValueError(f"{number} pairs: at least 2 are needed")
    middle, per_pair, freedom = trimmed_mean(log_ratios)
    quantile = student_quantile(freedom, 1 - ALPHA / (len(LOOKS) + 1) / 2)
    reach = quantile * math.sqrt(per_pair / number + INSTANCE**2)
    return SwitchedSpeedup(
        speedup=math.exp(middle),
        low=math.exp(middle - reach),
        high=math.exp(middle + reach),
        pairs=number,
    )
