"""Verdict on an interval of a speed-up: faster, slower, equal or undecided."""

from typing import Literal


SpeedVerdict = Literal["faster", "slower", "equal", "undecided"]

MARGIN = 0.02
"""Relative change, either way, up to which two speeds count as equal."""


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
