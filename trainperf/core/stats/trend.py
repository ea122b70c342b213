"""Robust slope of something that may grow step by step, in constant memory.

Of each stretch of steps only the least value is kept, so what is held now and then on top of the
rest (a logged batch, garbage not yet collected) does not count.  The slope is Theil and Sen's over
the latter half, the median over all pairs, so what grows and then stops has none.  Its interval
contains 0 where the least value of that half is no more than that of the first, so what is emptied
again and again does not grow.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt


STRETCHES = 128
"""The most stretches that are kept; they get twice as long when there would be more."""

LEAST_STRETCHES = 6
"""In the latter half: of fewer no slope is told."""

_Z95 = NormalDist().inv_cdf(0.975)

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trend:
    """Its value is a slope: units per step.

    The same steps give the same stretches however they are grouped, so merging is associative.
    """

    at: tuple[float, ...]
    """Step at which each stretch has its least value, ascending."""
    least: tuple[float, ...]
    length: int
    """Of a stretch, in steps: a power of two; stretches begin at its multiples."""
    n: int

    @classmethod
    def of(cls, at: Values, values: Values) -> "Trend":
        """Of *values* known after the steps *at*."""
        return _bounded(at, values, 1, len(at))

    def merge(self, other: "Trend") -> "Trend":
        """Of the steps of both."""
        at = np.array(self.at + other.at)
        least = np.array(self.least + other.least)
        return _bounded(at, least, max(self.length, other.length), self.n + other.n)

    def value(self) -> float | None:
        """Median slope over the latter half of the steps; `None` when they are too few."""
        slopes = self._slopes()
        return None if slopes is None else float(np.median(slopes))

    def interval(self) -> tuple[float, float] | None:
        """Sen's 95 % interval of that slope: order statistics of the slopes of pairs.

        Its lower end is at most the slope from the least value of the first half to that of the
        latter.
        """
        slopes = self._slopes()
        if slopes is None:
            return None
        pairs = len(slopes)
        values = (1 + math.isqrt(1 + 8 * pairs)) // 2
        reach = _Z95 * math.sqrt(values * (values - 1) * (2 * values + 5) / 18)
        low, high = math.floor((pairs - reach) / 2), math.ceil((pairs + reach) / 2)
        ordered = np.sort(slopes)
        least = min(float(ordered[max(low, 0)]), self._rise())
        return least, float(ordered[min(high, pairs - 1)])

    @classmethod
    def across(cls, ranks: "Sequence[Trend]") -> "Trend":
        """The rank that grows fastest: it is the first to run out."""
        return max(ranks, key=lambda rank: rank.value() or 0.0)

    def _rise(self) -> float:
        """Slope between the least values of the two halves."""
        half = (self.at[0] + self.at[-1]) / 2
        points = list(zip(self.least, self.at, strict=True))
        first = min(point for point in points if point[1] < half)
        latter = min(point for point in points if point[1] >= half)
        return (latter[0] - first[0]) / (latter[1] - first[1])

    def _slopes(self) -> Values | None:
        at, least = np.array(self.at), np.array(self.least)
        late = at >= (at[0] + at[-1]) / 2
        at, least = at[late], least[late]
        if len(at) < LEAST_STRETCHES:
            return None
        first, second = np.triu_indices(len(at), 1)
        slopes: Values = (least[second] - least[first]) / (at[second] - at[first])
        return slopes


def _bounded(at: Values, values: Values, length: int, n: int) -> Trend:
    while len(np.unique(at // length)) > STRETCHES:
        length *= 2
    stretch = at // length
    order = np.lexsort((at, values, stretch))
    first = np.unique(stretch[order], return_index=True)[1]
    kept = order[first]
    return Trend(tuple(at[kept].tolist()), tuple(values[kept].tolist()), length, n)
