"""Pairs of a name and something, put together by name: as lists, or as sums.

Names keep the order in which they come first: `("a", 1), ("b", 2), ("a", 3)` are `a: 1, 3` and
`b: 2`, and as sums `a: 4` and `b: 2`.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar


Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")
Number = TypeVar("Number", int, float)


def grouped(pairs: Iterable[tuple[Name, Value]]) -> dict[Name, list[Value]]:
    """All that belongs to each name, in order."""
    groups: dict[Name, list[Value]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return groups


def summed(pairs: Iterable[tuple[Name, Number]]) -> dict[Name, Number]:
    """What belongs to each name, added up."""
    return {name: sum(values) for name, values in grouped(pairs).items()}


def largest(pairs: Iterable[tuple[Name, Number]], default: Name) -> Name:
    """The name to which most belongs; by default another one."""
    sums = summed(pairs)
    return max(sums, key=sums.__getitem__, default=default)


def counted(pairs: Iterable[tuple[Name, int]]) -> Counter[Name]:
    """Whole numbers that belong to each name, added up by what knows the largest of them."""
    return Counter(summed(pairs))
