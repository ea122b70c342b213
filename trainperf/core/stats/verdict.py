"""Verdict on an interval of a speed-up: faster, slower, equal or undecided."""

import math
from dataclasses import dataclass
from typing import Literal

from trainperf.core.stats.bootstrap import TRIMMED, Z95
from trainperf.core.stats.student import student_quantile


SpeedVerdict = Literal["faster", "slower", "equal", "undecided"]

MARGIN = 0.02
"""Relative change, either way, up to which two speeds count as equal."""

MOST_REPEATS = 20
"""More repeats a side are no advice."""


def verdict_of(low: float, high: float, margin: float = MARGIN) -> SpeedVerdict:
    """Verdict on a speed-up between *low* and *high*, its whole 95 % interval.

    *Equal* is shown, by an equivalence test: all of the interval is within the margin (two
    one-sided tests of 2.5 % each), even where it does not contain 1.  Else *faster* and *slower*
    are on one side of 1.  *Undecided* is everything else, and shows nothing.
    """
    if max(high, 1 / low) <= 1 + margin:
        return "equal"
    if low <= 1 <= high:
        return "undecided"
    return "faster" if low > 1 else "slower"


def reach_to_decide(speedup: float, margin: float = MARGIN) -> float:
    """How far an interval may reach, as a logarithm, to end before 1 or inside the margin."""
    distance = abs(math.log(speedup))
    return max(distance, math.log1p(margin) - distance)


def reach_to_gate(speedup: float, limit: float) -> float:
    """How far it may reach to show a slowdown that is beyond *limit*, or to exclude it."""
    slowdown = -math.log(speedup)
    return slowdown if slowdown > math.log1p(limit) else math.log1p(limit) - slowdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Two sides of an interval: how many runs each has, and whether they took turns."""

    before: int
    after: int
    in_turns: bool = False

    @property
    def widening(self) -> float:
        """Reach of the interval over the standard deviation of a run, all its reasons included.

        Student's quantile with the degrees of freedom of the interval, normal for single runs,
        times the error of a difference of means.
        """
        freedom = self.before + self.after - 2
        if self.in_turns:
            freedom = self.before - 2 * int(TRIMMED * self.before) - 1
        quantile = student_quantile(freedom, 0.975) if freedom else Z95
        return quantile * math.sqrt(1 / self.before + 1 / self.after)


def repeats_to_reach(reach: float, wanted: float, runs: Repeated) -> int | None:
    """Repeats a side that would narrow an interval, if nothing turns out differently.

    Args:
        reach: Half its width, as a logarithm, with the runs there are.
        wanted: Half the width that decides.
        runs: The runs there are; more of them are taken as they were.

    Returns:
        More than there are; `None` where it would take more than `MOST_REPEATS`.
    """
    scatter = reach / runs.widening
    for number in range(max(runs.before, runs.after) + 1, MOST_REPEATS + 1):
        more = Repeated(before=number, after=number, in_turns=runs.in_turns)
        if more.widening * scatter <= wanted:
            return number
    return None
