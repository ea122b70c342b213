"""Values of columns: kinds of events, interned texts, and numbers exactly as the file has them.

A text is kept once and stands in a column as a number.  Times are decimal microseconds in the file
and whole nanoseconds in a column: a float of 64 bits holds nanoseconds of up to 101 days; beyond
that the decoder gives the digits themselves.
"""

import re
from collections.abc import Hashable, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Integers, Mask
from trainperf.core.errors import TraceError
from trainperf.traces.event_table import NONE, Codes, Kind


MEMORY_NAME = "[memory]"
MEMORY_CATEGORY = "cpu_instant_event"

_BY_CATEGORY = {
    "cpu_op": Kind.CPU_OP,
    "operator": Kind.CPU_OP,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "python_function": Kind.PYTHON,
    MEMORY_CATEGORY: Kind.MEMORY,
    "overhead": Kind.OVERHEAD,
}

_BY_ENDING = (("_runtime", Kind.RUNTIME), ("_driver", Kind.RUNTIME), ("_sync", Kind.DEVICE_SYNC))
"""`cuda_runtime`, `hip_runtime`, `xpu_driver`, `cuda_sync` and those of devices to come."""

_ANNOTATION = re.compile(
    r"ProfilerStep#|Optimizer\.|enumerate\(DataLoader\)|DistributedDataParallel\.|nccl:|gloo:|## "
)
"""Names of ranges that PyTorch itself opens, which old profilers wrote as operators."""


@lru_cache
def kind_of(category: str | None) -> Kind:
    """The kind by category alone; `OTHER` for one that is not known."""
    lowered = (category or "").lower()
    by_ending = (kind for ending, kind in _BY_ENDING if lowered.endswith(ending))
    return _BY_CATEGORY.get(lowered) or next(by_ending, Kind.OTHER)


def is_annotation(name: str) -> bool:
    """Whether an operator of this name is a range in truth.

    Told by the name, since the traces of 2021 have one category for both.  A range that a user
    named cannot be told from an operator there, and stays one.
    """
    return _ANNOTATION.match(name) is not None


Key = TypeVar("Key", bound=Hashable)


class Names(dict[Key, int]):
    """What is met to its code, in order of appearance; what is new gets the next code."""

    def __init__(self, most_characters: int) -> None:
        super().__init__()
        self.in_order: list[Key] = []
        self._left = most_characters

    def __missing__(self, key: Key) -> int:
        self._left -= len(str(key))
        if self._left < 0:
            raise TraceError(
                "the names of its events take more memory than those of any real trace; "
                "raise the limit if you trust it"
            )
        self[key] = len(self.in_order)
        self.in_order.append(key)
        return self[key]

    def texts(self) -> list[str]:
        """All texts, each at the place of its code; JSON without blanks."""
        return [_compact(key) if isinstance(key, bytes) else str(key) for key in self.in_order]


def _compact(body: bytes) -> str:
    try:
        return msgspec.json.format(body, indent=-1).decode("utf-8", errors="replace")
    except (msgspec.DecodeError, RecursionError):
        return body.decode("utf-8", errors="replace")


MOST_NS = 2**61
"""Beyond 73 years before or after its zero, no clock is believed; sums of two still fit."""

_MOST_US = MOST_NS // 1000
EXACT_BELOW_US = 2.0**43
"""Floats of microseconds below this are less than a nanosecond apart."""

FIRST_FOLDED = 2**30
"""Ids from here on are given numbers of their own."""


class InexactError(Exception):
    """Floats have lost digits of a time: decode again, with all of them."""


def nanoseconds(values: Sequence[Any]) -> tuple[Integers, Mask]:
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


def _all(values: Sequence[object]) -> Mask:
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


def ratios(values: Sequence[Any]) -> npt.NDArray[np.float16]:
    """Small numbers to three digits; `NONE` for what is no number, negative, or too large."""
    try:
        numbers = np.fromiter(values, np.float64, len(values))
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([value if isinstance(value, int | float) else NONE for value in values])
    believed = (numbers >= 0) & (numbers <= np.finfo(np.float16).max)
    return np.where(believed, numbers, NONE).astype(np.float16)


class Identities:
    """Numbers that only tell things apart, in 32 bits; equal ones stay equal, others different.

    The largest are given numbers of their own, in the order in which they are met.
    """

    def __init__(self) -> None:
        self._large: dict[int, int] = {}

    def __call__(self, values: Sequence[Any]) -> Codes:
        """Values of any type; `NONE` for what is no number."""
        try:
            numbers = np.fromiter(values, np.int64, len(values))
        except (TypeError, ValueError, OverflowError):
            return np.array([self._coded(_integer(value)) for value in values], dtype=np.int32)
        large = numbers >= FIRST_FOLDED
        if large.any():
            numbers[large] = [self._coded(value) for value in numbers[large].tolist()]
        return np.maximum(numbers, NONE).astype(np.int32)

    def _coded(self, value: int) -> int:
        if value < FIRST_FOLDED:
            return max(value, NONE)
        return self._large.setdefault(value, FIRST_FOLDED + len(self._large))


def _integer(value: object) -> int:
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    if isinstance(value, float):
        value = int(value) if abs(value) < 2**63 else None
    return value if isinstance(value, int) and abs(value) < 2**64 else NONE
