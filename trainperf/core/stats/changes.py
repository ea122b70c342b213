"""Change points and slow drift in a series of levels, told from noise that wanders.

A machine that others use wanders too: a test against white noise finds changes in every long run.
So a jump counts where it is far larger than the jumps that the same series makes elsewhere, and a
drift where the series rises nearly everywhere, and in its later half as well.

*Change points* are found by binary segmentation: the split with the largest difference of ranks
between its sides (Pettitt 1979), both parts again.  A split stands if the level moves by
`LEAST_CHANGE`, most of that within a few places, and that jump is `UNUSUAL` times what nine in ten
of the jumps between neighbouring places are.  A *drift* is Theil and Sen's slope; see `drift`.

Example: 60 levels about 50 ms that wander by 1 ms, then 60 about 59 ms: nine in ten jumps between
neighbours are below 1 ms, that one is 9 ms.  A wander from 50 to 59 ms has no such jump.
"""

import math

import numpy as np

from trainperf.core.arrays import Column
from trainperf.core.stats.trend import slopes


LEAST_LEVELS = 32
"""Of fewer no change is told."""

LEAST_SIDE = 6
"""Levels on either side of a change: what passes sooner is a slow stretch, no new level."""

LEAST_CHANGE = 0.05
"""Of the level before."""

UNUSUAL = 4.0
ABRUPT = 0.6
"""Of the change that happens within the places next to it: the rest is a slope."""

BLOCKS = 16
FALLS = 0.15
"""Of the rise from the first sixteenth of a series to the last, how much it may fall in between,
all falls together: a series that wanders falls less once in some hundred times."""

DOUBLES = 2.0
FALLS_WHEN_DOUBLED = 0.4
"""The same where the last level is so many times the first: no machine wanders that far and rises
in both halves, but others on it make single parts slower."""

GOES_ON = 0.4
"""What each half's slope must be of that of the whole: what rises and stops is a warm-up."""


def change_points(levels: Column) -> tuple[int, ...]:
    """Places at which a new level begins, ascending; none in a series that wanders or drifts."""
    return tuple(sorted(_splits(np.log(np.maximum(levels, 1e-12)), 0)))


def drift(at: Column, levels: Column) -> float | None:
    """The rise of *levels* over *at*, as a share of where it begins.

    The rise is that of the line through all of it, so that no single part decides; it begins with
    the median of the first of 16 equal parts.  `None` where that is not above 0, where the rise is
    not steady, or there are too few.

    Steady: from one of 16 equal parts to the next its median hardly ever falls, or not much where
    it doubles, and each half rises by at least 0.4 of the slope of the whole.
    """
    if len(levels) < LEAST_LEVELS:
        return None
    parts = np.array_split(np.arange(len(levels)), min(BLOCKS, len(levels) // 2))
    medians = np.array([np.median(levels[part]) for part in parts])
    steps = np.diff(medians)
    falls = FALLS_WHEN_DOUBLED if medians[-1] >= DOUBLES * medians[0] > 0 else FALLS
    if -steps.clip(max=0).sum() > falls * (medians[-1] - medians[0]):
        return None
    half = len(levels) // 2
    slope, early, late = (
        _slope(at[part], levels[part]) for part in (slice(None), slice(half), slice(half, None))
    )
    if slope <= 0 or min(early, late) < GOES_ON * slope or medians[0] <= 0:
        return None
    return slope * float(at[-1] - at[0]) / float(medians[0])


def _splits(logs: Column, offset: int) -> list[int]:
    place = _split(logs)
    if place is None:
        return []
    before, after = _splits(logs[:place], offset), _splits(logs[place:], offset + place)
    return [*before, offset + place, *after]


def _split(logs: Column) -> int | None:
    n = len(logs)
    if n < LEAST_LEVELS:
        return None
    # Pettitt's statistic: how much the ranks before a place differ from those after it.
    ranks = np.argsort(np.argsort(logs)) + 1.0
    places = np.arange(LEAST_SIDE, n - LEAST_SIDE + 1)
    sums = np.cumsum(ranks)[places - 1]
    apart = np.abs(2 * sums - places * (n + 1)) / np.sqrt(places * (n - places))
    place = int(places[np.argmax(apart)])
    width = max(3, min(LEAST_SIDE, n // 8))
    # Median of the next levels less that of the ones before, at every place with so many.
    medians = np.median(np.lib.stride_tricks.sliding_window_view(logs, width), axis=1)
    jumps = medians[width:] - medians[:-width]
    # The place nearby with the largest jump.
    first, last = max(width, place - 2 * width), min(n - width, place + 2 * width)
    place = first + int(np.argmax(np.abs(jumps[first - width : last - width + 1])))
    reach = 4 * width
    after, before = logs[place : place + reach], logs[max(0, place - reach) : place]
    change = float(np.median(after) - np.median(before))
    near = np.abs(np.arange(width, n - width + 1) - place) < 2 * width
    usual = float(np.quantile(np.abs(jumps[~near]), 0.9)) if (~near).any() else math.inf
    jump = float(jumps[place - width])
    large = abs(change) >= math.log1p(LEAST_CHANGE) and jump * change > 0
    abrupt = abs(jump) >= max(ABRUPT * abs(change), UNUSUAL * usual)
    return place if large and abrupt else None


def _slope(at: Column, levels: Column) -> float:
    """Theil and Sen's, of at most 128 of the points."""
    chosen = np.linspace(0, len(at) - 1, min(len(at), 128)).astype(int)
    at, levels = at[chosen], levels[chosen]
    return float(np.median(slopes(at, levels)))
