"""Numbers of a file as numbers of a column: exactly, and whatever stands there.

Times are decimal microseconds in the file and whole nanoseconds in a column.  A float of 64 bits
holds nanoseconds of up to 101 days; beyond that the decoder gives the digits themselves.
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt

from trainperf.traces.event_table import NONE


Integers = npt.NDArray[np.int64]

MOST_NS = 2**61
"""Beyond 73 years before or after its zero, no clock is believed; sums of two still fit."""

_MOST_US = MOST_NS // 1000
EXACT_BELOW_US = 2.0**43
"""Floats of microseconds below this are less than a nanosecond apart."""

_LARGE = 2**30


class InexactError(Exception):
    """Floats have lost digits of a time: decode again, with all of them."""


def nanoseconds(values: Sequence[Any]) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Microseconds of any type as nanoseconds, and which of them are a time at all.

    Raises:
        InexactError: a float is too large to tell nanoseconds.
    """
    types = set(map(type, values))
    if types == {int} and _believable(values):
        return np.fromiter(values, np.int64, len(values)) * 1000, _all(values)
    if float in types and types <= {int, float}:
        return _of_floats(values), _all(values)
    # Compared before they are converted: an exponent of a million makes a million digits.
    if Decimal in types and types <= {int, Decimal} and _believable(values):
        whole = [round(value * 1000) for value in values]
        return np.array(whole, dtype=np.int64), _all(values)
    each = [_nanoseconds(value) for value in values]
    good = np.array([value is not None for value in each], dtype=np.bool_)
    return np.array([value or 0 for value in each], dtype=np.int64), good


def _believable(values: Sequence[int | Decimal]) -> bool:
    return min(values) >= -_MOST_US and max(values) <= _MOST_US


def _all(values: Sequence[object]) -> npt.NDArray[np.bool_]:
    return np.ones(len(values), dtype=np.bool_)


def _of_floats(values: Sequence[int | float]) -> Integers:
    try:
        numbers = np.fromiter(values, np.float64, len(values))
    except OverflowError:
        raise InexactError from None
    if not (np.abs(numbers) < EXACT_BELOW_US).all():
        raise InexactError
    # The part before the point is exact as it is, so only the rest has to be rounded.
    whole = np.floor(numbers)
    return whole.astype(np.int64) * 1000 + np.rint((numbers - whole) * 1000).astype(np.int64)


def _nanoseconds(value: object) -> int | None:
    if isinstance(value, str):
        try:
            value = Decimal(value)
        except InvalidOperation:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, float):
        if abs(value) >= EXACT_BELOW_US:
            raise InexactError
        value = Decimal(value)
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    return round(value * 1000) if -_MOST_US <= value <= _MOST_US else None


def quantities(values: Sequence[Any]) -> Integers:
    """Bytes and counts; `NONE` for what is no number, or none that 64 bits hold."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        whole = [_integer(value) for value in values]
        return np.array([n if abs(n) < 2**63 else NONE for n in whole], dtype=np.int64)


class Identities:
    """Numbers that only tell things apart, in 32 bits; equal ones stay equal, others different.

    The largest are given numbers of their own, in the order in which they are met.
    """

    def __init__(self) -> None:
        self._large: dict[int, int] = {}

    def __call__(self, values: Sequence[Any]) -> npt.NDArray[np.int32]:
        """Values of any type; `NONE` for what is no number."""
        try:
            numbers = np.fromiter(values, np.int64, len(values))
        except (TypeError, ValueError, OverflowError):
            return np.array([self._coded(_integer(value)) for value in values], dtype=np.int32)
        large = numbers >= _LARGE
        if large.any():
            numbers[large] = [self._coded(value) for value in numbers[large].tolist()]
        return np.maximum(numbers, NONE).astype(np.int32)

    def _coded(self, value: int) -> int:
        if value < _LARGE:
            return max(value, NONE)
        return self._large.setdefault(value, _LARGE + len(self._large))


def _integer(value: object) -> int:
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    if isinstance(value, float):
        value = int(value) if abs(value) < 2**63 else None
    return value if isinstance(value, int) and abs(value) < 2**64 else NONE
