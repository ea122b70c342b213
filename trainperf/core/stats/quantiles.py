"""Distributions of step times in constant memory, with an interval of the median.

A `Distribution` counts values in bins whose edges grow by 0.2 %, so any quantile is right to
0.1 % and merging is exact integer addition.  The sums next to the counts give the lag-1
autocorrelation, which widens the interval of the median: neighbouring steps are not independent.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from typing_extensions import Self


Z95 = NormalDist().inv_cdf(0.975)
"""Standard deviations on either side of a mean in which 95 % of normal values lie."""


GROWTH = 1.002
"""Ratio of a bin's upper edge to its lower edge; a quantile is off by at most half of it."""

_LOG_GROWTH = math.log(GROWTH)
_LEAST_FOR_INTERVAL = 6
"""Below six values no order statistics enclose the median with 95 % confidence."""


@dataclass(frozen=True, slots=True)
class Serial:
    """Sums over consecutive values, mergeable in order, from which lag-1 autocorrelation follows.

    Works on logarithms, so that one huge value does not decide.
    """

    n: int
    total: float
    squares: float
    products: float
    first: float
    last: float

    @classmethod
    def of(cls, logs: npt.NDArray[np.float64]) -> "Serial":
        """Sums of one run of values."""
        return cls(
            n=len(logs),
            total=float(logs.sum()),
            squares=float((logs * logs).sum()),
            products=float((logs[1:] * logs[:-1]).sum()),
            first=float(logs[0]),
            last=float(logs[-1]),
        )

    def merge(self, later: "Serial") -> "Serial":
        """Sums of this run followed by *later*."""
        if not self.n or not later.n:
            return self if self.n else later
        return Serial(
            n=self.n + later.n,
            total=self.total + later.total,
            squares=self.squares + later.squares,
            products=self.products + later.products + self.last * later.first,
            first=self.first,
            last=later.last,
        )

    def autocorrelation(self) -> float:
        """Lag-1 autocorrelation, between 0 (or negative: taken as 0) and 0.99."""
        if self.n < 3:
            return 0.0
        mean = self.total / self.n
        variance = self.squares / self.n - mean * mean
        if variance <= 1e-12:
            return 0.0
        ends = self.first + self.last
        covariance = (self.products - mean * (2 * self.total - ends)) / (self.n - 1) + mean * mean
        return min(max(covariance / variance, 0.0), 0.99)


_NO_VALUES = Serial(n=0, total=0.0, squares=0.0, products=0.0, first=0.0, last=0.0)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counts of values in logarithmic bins, zeros apart.  Its value is the median.

    Negative values and NaN are no durations and are not counted.
    """

    lowest: int
    """Bin number of `counts[0]`."""
    counts: npt.NDArray[np.int64]
    serial: Serial
    percentile: float = 50.0
    """Which quantile `value` returns."""
    zeros: int = 0
    ranks: int = 1
    """How many ranks are pooled: their steps are the same steps and no further evidence."""

    @classmethod
    def of(cls, values: npt.NDArray[np.float64], percentile: float = 50.0) -> Self | None:
        """Distribution of the *values*, in their order; `None` when there is none."""
        positive = values[values > 0]
        zeros = 0 if len(positive) == len(values) else int((values == 0).sum())
        if not len(positive):
            return cls(0, np.zeros(1, int), _NO_VALUES, percentile, zeros) if zeros else None
        logs = np.log(positive)
        bins = np.floor(logs / _LOG_GROWTH).astype(np.int64)
        lowest = int(bins.min())
        return cls(lowest, np.bincount(bins - lowest), Serial.of(logs), percentile, zeros)

    @property
    def n(self) -> int:
        """How many values."""
        return self.serial.n + self.zeros

    def merge(self, other: "Distribution") -> Self:
        """Counts of both, *other* following this one."""
        lowest = min(self.lowest, other.lowest)
        end = max(part.lowest + len(part.counts) for part in (self, other))
        counts = np.zeros(end - lowest, dtype=np.int64)
        for part in (self, other):
            start = part.lowest - lowest
            counts[start : start + len(part.counts)] += part.counts
        return replace(
            self,
            lowest=lowest,
            counts=counts,
            serial=self.serial.merge(other.serial),
            zeros=self.zeros + other.zeros,
            ranks=max(self.ranks, other.ranks),
        )

    def quantile(self, percentile: float) -> float:
        """The value below which *percentile* % of the values lie, right to 0.1 %."""
        return self._order_statistic(percentile / 100 * (self.n - 1))

    def value(self) -> float | None:
        """The quantile this distribution is read at."""
        return self.quantile(self.percentile)

    def interval(self) -> tuple[float, float] | None:
        """A 95 % interval of that quantile from order statistics, widened for autocorrelation."""
        share = self.percentile / 100
        correlation = self.serial.autocorrelation()
        independent = self.n / self.ranks * (1 - correlation) / (1 + correlation)
        reach = Z95 * math.sqrt(share * (1 - share) / independent)
        if independent < _LEAST_FOR_INTERVAL or share - reach < 0 or share + reach > 1:
            return None
        last = self.n - 1
        return self._order_statistic((share - reach) * last), self._order_statistic(
            (share + reach) * last
        )

    @classmethod
    def across(cls, ranks: Sequence[Self]) -> Self:
        """Ranks are pooled, but are no more evidence than one: they ran the same steps."""
        pooled = reduce(lambda a, b: a.merge(b), ranks)
        return replace(pooled, ranks=len(ranks))

    def _order_statistic(self, place: float) -> float:
        place = min(max(place, 0.0), float(self.n - 1)) - self.zeros
        if place < 0:
            return 0.0
        below = int(np.searchsorted(np.cumsum(self.counts), place, side="right"))
        return math.exp((self.lowest + min(below, len(self.counts) - 1) + 0.5) * _LOG_GROWTH)


def joined(parts: Iterable[Distribution | None]) -> Distribution | None:
    """The distribution of all, in their order; `None` where there is none."""
    present = [part for part in parts if part is not None]
    return reduce(Distribution.merge, present) if present else None


class InterquartileRange(Distribution):
    """A distribution whose value is its interquartile range."""

    def value(self) -> float | None:
        """Distance between the quartiles."""
        return self.quantile(75) - self.quantile(25)

    def interval(self) -> tuple[float, float] | None:
        """No interval is known for the range."""
        return None


def wilson(fraction: float, n: float) -> tuple[float, float]:
    """95 % interval of a share that was seen in *n* independent looks (Wilson 1927).

    E.g. 15 of 100: 9.3 to 23.3 %.
    """
    if n <= 0:
        return 0.0, 1.0
    spread = Z95**2 / n
    middle = (fraction + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (fraction * (1 - fraction) + spread / 4)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
