"""Verdict on an interval of a speed-up: faster, slower, equal or undecided."""

from typing import Literal

from trainperf.core.choice import first_that_holds


SpeedVerdict = Literal["faster", "slower", "equal", "undecided"]

MARGIN = 0.02
"""Relative change, either way, up to which two speeds count as equal."""

WIDE = 1.25
"""Where an interval allows as much faster and as much slower, it shows nothing."""


def verdict_of(low: float, high: float, margin: float = MARGIN) -> SpeedVerdict:
    """Verdict on a speed-up between *low* and *high*, its whole 95 % interval.

    *Equal* is shown, by an equivalence test: all of the interval is within the margin (two
    one-sided tests of 2.5 % each), even where it does not contain 1.  Else *faster* and *slower*
    are on one side of 1.  *Undecided* is everything else, and shows nothing.
    """
    return first_that_holds(
        ("equal", max(high, 1 / low) <= 1 + margin),
        ("undecided", low <= 1 <= high),
        ("faster", low > 1),
        ("slower", True),
    )


def wide(low: float, high: float) -> bool:
    """Whether the interval of a ratio spans more than it can mean."""
    return low < 1 / WIDE and high > WIDE
