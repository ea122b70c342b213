"""Robust slope of something that may grow step by step, in constant memory.

Of each stretch of steps only the least value is kept, so what is held now and then on top of the
rest (a logged batch, garbage not yet collected) does not count.  The slope is Theil and Sen's over
the latter half, the median over all pairs, so what grows and then stops has none.  What each new
key of a cache takes (a shape, a compiled graph) is estimated and taken off first: it is no growth
by the step.  The interval contains 0 where growth does not go on as it began: see
`Trend.interval`.

Worked example: 5 MB for each of 200 shapes, of which a step brings ever fewer new ones, and 20 kB
more every step.  Where the number of shapes bends and the memory bends with it, 5 MB a shape fit;
what is left of the memory is straight, 20 kB a step.
"""

import math
from dataclasses import dataclass

import numpy as np

from trainperf.core.arrays import Column
from trainperf.core.stats.quantiles import Z95
from trainperf.core.stats.reductions import OfLargestRank


STRETCHES = 128
"""The most stretches that are kept; they get twice as long when there would be more."""

LEAST_STRETCHES = 6
"""In the latter half: of fewer no slope is told."""

WARMUP = 0.25
"""Share of the steps whose growth is not compared with the later ones'."""

GOES_ON = 0.75
"""What the slope of the later half must be of that of the earlier one.

A cache that is filled from equally likely keys, of which none is known to us, keeps 0.69 of its
slope in as many steps as it has keys; the logarithm 0.51, the square root 0.72.
"""


@dataclass(frozen=True, slots=True)
class Trend(OfLargestRank):
    """Its value is a slope: units per step.  The rank that grows fastest is the first to run out.

    The same steps give the same stretches however they are grouped, so merging is associative.
    """

    points: tuple[tuple[float, float, float], ...]
    """Of each stretch, in their order: the step at which it has its least value, that value, and
    the keys that caches had got by then."""
    length: int
    """Of a stretch, in steps: a power of two; stretches begin at its multiples."""
    n: int

    @classmethod
    def of(cls, at: Column, values: Column, keys: Column | None = None) -> "Trend":
        """Of *values* known after the steps *at*, and of how many *keys* caches had by then."""
        columns = (at, values, np.zeros(len(at)) if keys is None else keys)
        return _bounded(np.column_stack(columns), 1, len(at))

    def merge(self, other: "Trend") -> "Trend":
        """Of the steps of both."""
        points, length = np.array(self.points + other.points), max(self.length, other.length)
        return _bounded(points, length, self.n + other.n)

    def value(self) -> float | None:
        """Median slope over the latter half of the steps.

        `None` when they are too few, or each of them brought as many new keys.
        """
        least, doubt = self._without_keys()
        slopes = self._slopes(least, 0.5, 1.0)
        return None if slopes is None or doubt == math.inf else float(np.median(slopes))

    def interval(self) -> tuple[float, float] | None:
        """Sen's 95 % interval of that slope, and of what a key takes.

        Its lower end is at most the slope from the least value of the first half to that of the
        latter, so what is emptied again and again does not grow; and at most 0 where the first
        quarter is left out and the later half of the rest does not grow as the earlier one.
        """
        least, doubt = self._without_keys()
        slopes = self._slopes(least, 0.5, 1.0)
        if slopes is None or doubt == math.inf:
            return None
        pairs = len(slopes)
        values = (1 + math.isqrt(1 + 8 * pairs)) // 2
        reach = Z95 * math.sqrt(values * (values - 1) * (2 * values + 5) / 18)
        low, high = math.floor((pairs - reach) / 2), math.ceil((pairs + reach) / 2)
        ordered = np.sort(slopes)
        bottom = min(float(ordered[max(low, 0)]), self._rise(least))
        bottom = bottom if self._goes_on(least) else min(bottom, 0.0)
        return bottom - doubt, float(ordered[min(high, pairs - 1)]) + doubt

    def _without_keys(self) -> tuple[Column, float]:
        """The least values without what keys take, and by how much that may shift the slope.

        By least squares on steps and keys, and the 95 % interval of what a key takes.
        """
        every = np.array(self.points).T
        after = every[0] >= every[0][0] + WARMUP * (every[0][-1] - every[0][0])
        at, least, keys = every[:, after]
        if len(at) < 2 * LEAST_STRETCHES or keys[0] == keys[-1]:
            return every[1], 0.0
        steps = at - at.mean()
        more = keys - keys.mean()
        per_step = float(steps @ more / (steps @ steps))
        # What the keys have beyond their own trend: by that alone a cache is told from a leak.
        beyond = more - per_step * steps
        spread = float(beyond @ beyond)
        if spread <= 1e-9 * float(more @ more):
            return every[1], math.inf
        per_key = float(beyond @ least / spread)
        fit = np.column_stack((np.ones(len(at)), steps, keys))
        left = least - fit @ np.linalg.lstsq(fit, least, rcond=None)[0]
        error = math.sqrt(float(left @ left) / (len(at) - 3) / spread)
        return every[1] - per_key * every[2], Z95 * error * abs(per_step)

    def _rise(self, least: Column) -> float:
        """Slope between the least values of the two halves."""
        at = [point[0] for point in self.points]
        half = (at[0] + at[-1]) / 2
        points = list(zip(least.tolist(), at, strict=True))
        first = min(point for point in points if point[1] < half)
        latter = min(point for point in points if point[1] >= half)
        return float((latter[0] - first[0]) / (latter[1] - first[1]))

    def _goes_on(self, least: Column) -> bool:
        middle = (1 + WARMUP) / 2
        earlier, later = self._slopes(least, WARMUP, middle), self._slopes(least, middle, 1.0)
        if earlier is None or later is None:  # as few as there may be: the interval is wide
            return True
        return bool(np.median(later) >= GOES_ON * np.median(earlier))

    def _slopes(self, least: Column, begins: float, ends: float) -> Column | None:
        """Slopes of all pairs in a part of the steps."""
        at = np.array(self.points)[:, 0]
        first, last = at[0], at[-1]
        inside = (at >= first + begins * (last - first)) & (at <= first + ends * (last - first))
        return None if inside.sum() < LEAST_STRETCHES else slopes(at[inside], least[inside])


def slopes(at: Column, values: Column) -> Column:
    """Of all pairs of points, the later over the earlier."""
    earlier, later = np.triu_indices(len(at), 1)
    return np.asarray((values[later] - values[earlier]) / (at[later] - at[earlier]))


def _bounded(points: Column, length: int, n: int) -> Trend:
    at, values, _ = points.T
    while len(np.unique(at // length)) > STRETCHES:
        length *= 2
    stretch = at // length
    order = np.lexsort((at, values, stretch))
    first = np.unique(stretch[order], return_index=True)[1]
    return Trend(tuple(map(tuple, points[order[first]].tolist())), length, n)
