"""Is one faster than the other, or is it noise?  Stands on ratios of calls timed in turns."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Literal


Verdict = Literal["faster", "slower", "no clear change", "loss differs", "not comparable"]


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Median of the ratios with the 95 % interval of order statistics.

    Exact whatever their distribution, if neighbouring rounds are independent; without ends below
    six ratios, where no order statistics enclose the median that surely.
    """
    ordered = sorted(ratios)
    n = len(ordered)
    outside = 0
    cumulative = 0.0
    while outside < n:
        cumulative += math.comb(n, outside) / 2**n
        if 2 * cumulative > 0.05:
            break
        outside += 1
    if outside == 0:
        return median(ordered), None, None
    return median(ordered), ordered[outside - 1], ordered[n - outside]


def verdict_of(low: float | None, high: float | None, *, comparable: bool, same: bool) -> Verdict:
    """The verdict on a speed-up between *low* and *high*; a wrong result is never called faster."""
    if not comparable:
        return "not comparable"
    if not same:
        return "loss differs"
    if low is None or high is None or low <= 1.0 <= high:
        return "no clear change"
    return "faster" if low > 1.0 else "slower"
