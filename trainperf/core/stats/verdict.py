"""Verdict on an interval of a speed-up: faster, slower, equal or undecided."""

import math
from typing import Literal

from scipy.special import stdtrit


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


def repeats_to_decide(speedup: float, noise: float, margin: float = MARGIN) -> int | None:
    """Repeats a side, one after the other, that would decide, if nothing turns out differently.

    Of as many repeats *k*, the interval reaches `t(2k - 2) · noise · sqrt(2 / k)` to either side.
    It has to end before 1, or inside the margin.

    Args:
        speedup: As estimated so far.
        noise: Relative standard deviation from run to run.
        margin: Up to which two speeds count as equal.

    Returns:
        At least 2; `None` where it would take more than `MOST_REPEATS`.
    """
    distance = abs(math.log(speedup))
    wanted = max(distance, math.log1p(margin) - distance)
    for number in range(2, MOST_REPEATS + 1):
        if float(stdtrit(2 * number - 2, 0.975)) * noise * math.sqrt(2 / number) <= wanted:
            return number
    return None
