"""Mergeable statistics: what is known about many steps without keeping them.

`a.merge(b)` adds later (or other) steps of the same rank and is associative;
`Reduction.across(ranks)` combines ranks that ran the same steps at the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol, runtime_checkable

from typing_extensions import Self


@runtime_checkable
class Reduction(Protocol):
    """A statistic that can be merged and read."""

    @property
    def n(self) -> int:
        """How many steps it stands on."""

    def merge(self, other: Self) -> Self:
        """The statistic of both sets of steps."""

    def value(self) -> float | None:
        """The statistic's value; `None` when it is undefined (0/0)."""

    def interval(self) -> tuple[float, float] | None:
        """A 95 % confidence interval of the value, if one is known."""

    @classmethod
    def across(cls, ranks: Sequence[Self]) -> Self:
        """The statistic of several ranks over the same steps."""


class _Pooled:
    """Ranks are pooled as if their steps were more steps; no interval."""

    def interval(self) -> tuple[float, float] | None:
        """No interval is known for this statistic."""
        return None

    @classmethod
    def across(cls, ranks: Sequence[Self]) -> Self:
        """Merge all ranks."""
        return reduce(lambda a, b: a.merge(b), ranks)  # type: ignore[attr-defined]


class OfLargestRank:
    """Of several ranks the one with the largest value stands for all."""

    @classmethod
    def across(cls, ranks: Sequence[Self]) -> Self:
        """The rank with the most."""
        return max(ranks, key=lambda rank: rank.value() or 0.0)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Ratio(_Pooled):
    """A quotient of sums (not a mean of quotients)."""

    numerator: float
    denominator: float
    n: int = 1

    def merge(self, other: Self) -> Self:
        """Add numerators and denominators."""
        return type(self)(
            self.numerator + other.numerator, self.denominator + other.denominator, self.n + other.n
        )

    def value(self) -> float | None:
        """Numerator over denominator; `None` when the denominator is 0."""
        return self.numerator / self.denominator if self.denominator else None


class Rate(Ratio):
    """An amount per second.  Over ranks amounts add up, and the time is the slowest rank's."""

    @classmethod
    def across(cls, ranks: Sequence[Self]) -> Self:
        """Amounts of all ranks over the longest of their times."""
        return cls(
            sum(rate.numerator for rate in ranks),
            max(rate.denominator for rate in ranks),
            max(rate.n for rate in ranks),
        )


class SharedRate(Rate):
    """Something all ranks do together (an optimizer step) per second: counted once."""

    @classmethod
    def across(cls, ranks: Sequence[Self]) -> Self:
        """The slowest rank's: nobody steps before it."""
        return max(ranks, key=lambda rate: rate.denominator)


@dataclass(frozen=True, slots=True)
class _Amount(_Pooled):
    """One number."""

    amount: float
    n: int = 1

    def value(self) -> float | None:
        """The number."""
        return self.amount


class Total(OfLargestRank, _Amount):
    """A plain sum over steps; over ranks the largest: a pause on two ranks at once is one pause."""

    def merge(self, other: Self) -> Self:
        """Add."""
        return type(self)(self.amount + other.amount, self.n + other.n)


class Maximum(_Amount):
    """The largest value seen; over ranks the largest of any rank."""

    def merge(self, other: Self) -> Self:
        """The larger one."""
        return type(self)(max(self.amount, other.amount), self.n + other.n)


@dataclass(frozen=True, slots=True)
class Last(_Pooled):
    """The value at the latest step; over ranks the mean of their latest values."""

    at: float
    amount: float
    n: int = 1

    def merge(self, other: Self) -> Self:
        """The later one; *n* counts the steps that had a value."""
        later = self if self.at > other.at else other
        return replace(later, n=self.n + other.n)

    def value(self) -> float | None:
        """The value at that step."""
        return self.amount

    @classmethod
    def across(cls, ranks: Sequence[Self]) -> Self:
        """Mean over ranks."""
        mean = sum(last.amount for last in ranks) / len(ranks)
        return cls(max(last.at for last in ranks), mean, max(last.n for last in ranks))


class LargestLast(OfLargestRank, Last):
    """The value at the latest step; over ranks the largest of their latest values."""


class First(LargestLast):
    """The value at the earliest step; over ranks the largest of them (the one waited for)."""

    def merge(self, other: Self) -> Self:
        """The earlier one."""
        return self if self.at <= other.at else other
