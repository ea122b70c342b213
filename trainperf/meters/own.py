"""Readings of a user's own meters: how they are kept in the run directory, and read back.

A report is made in another process, which must not import code that a run directory names.  So
the process that trains writes what its own meters say, and this combines the ranks.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from numbers import Real

import msgspec
import numpy as np

from trainperf.core.stats.reductions import (
    First,
    LargestLast,
    Last,
    Maximum,
    Rate,
    Ratio,
    Reduction,
    SharedRate,
    Total,
)
from trainperf.core.steps.records import OwnReading, RunInfo
from trainperf.meters.base import Meter
from trainperf.meters.fold import Fold, Reading, readings


_KINDS = (Ratio, Rate, SharedRate, Total, Maximum, First, Last, LargestLast)

SMALL: dict[str, Callable[..., Reduction]] = {kind.__name__: kind for kind in _KINDS}
"""Statistics of a few numbers, by name: they are kept whole, and sent between ranks."""


def plain(reading: Reading) -> Reading:
    """*reading* in Python's own numbers; one that is NaN or infinite has no value, but a reason.

    Raises:
        TypeError: Something in it is not a number.
    """
    if reading.value is None:
        return reading
    value, n = number(reading.value), int(number(reading.n))
    if not math.isfinite(value):
        reason = f"not measured: the meter's value is {value}"
        return msgspec.structs.replace(reading, value=None, n=0, low=None, high=None, reason=reason)
    ends = [number(end) for end in (reading.low, reading.high) if end is not None]
    bounded = len(ends) == 2 and all(map(math.isfinite, ends))
    low, high = ends if bounded else (None, None)
    return msgspec.structs.replace(reading, value=value, n=n, low=low, high=high)


def number(value: object) -> float:
    """A number of any kind, NumPy's among them, as Python's own.

    Raises:
        TypeError: It is none; a tensor is none, because reading one may wait for the device.
    """
    if not isinstance(value, Real | np.bool_):
        raise TypeError(f"{type(value).__name__} is not a number: give a float")
    return float(value)


def kept(meter: Meter, fold: Fold, info: RunInfo) -> OwnReading:
    """What *meter* says of the steps that *fold* has seen.

    Raises:
        TypeError: Something of it is not a number.
    """
    reading = plain(readings([fold], info)[meter.name])
    reduction = fold.reductions.get(meter.name)
    state = numbers_of(reduction)
    return OwnReading(
        value=reading.value,
        unit=meter.unit,
        title=meter.title_for_people,
        better=meter.better,
        n=reading.n,
        low=reading.low,
        high=reading.high,
        reason=reading.reason,
        reduction=type(reduction).__name__ if state else "",
        state=state,
    )


def without_value(meter: Meter, reason: str) -> OwnReading:
    """A reading of *meter* that was not measured, and why."""
    return OwnReading(
        unit=meter.unit, title=meter.title_for_people, better=meter.better, reason=reason
    )


def across(ranks: Sequence[OwnReading | None]) -> Reading:
    """One reading of several ranks, `None` for a rank that kept none.

    Statistics of a few numbers are combined as those of our own meters are; of any other the mean
    over the ranks is taken, without an interval.
    """
    present = [own for own in ranks if own is not None]
    measured = [own for own in present if own.value is not None]
    first = measured[0] if measured else present[0]
    several = len(measured) > 1
    value = _combined(measured) if several else first.value
    return Reading(
        value=value,
        unit=first.unit,
        title=first.title,
        better=first.better,
        n=max(own.n for own in present),
        low=None if several else first.low,
        high=None if several else first.high,
        per_rank=tuple(own.value if own else None for own in ranks) if len(ranks) > 1 else (),
        reason=first.reason if value is None else None,
    )


def _combined(ranks: Sequence[OwnReading]) -> float | None:
    kind = SMALL.get(ranks[0].reduction)
    if kind is not None and all(own.reduction == ranks[0].reduction for own in ranks):
        # Damaged, or of another release: the values are there all the same.
        with suppress(TypeError):
            reductions = [kind(*own.state) for own in ranks]
            return type(reductions[0]).across(reductions).value()
    return sum(own.value or 0.0 for own in ranks) / len(ranks)


def numbers_of(reduction: Reduction | None) -> tuple[float, ...]:
    """The numbers of which `SMALL` makes it again, the last one its steps; none for any other."""
    # A user's own class may add a field, or combine ranks in another way.
    if not isinstance(reduction, _KINDS) or type(reduction) not in _KINDS:
        return ()
    state = tuple(number(field) for field in dataclasses.astuple(reduction))
    return state if all(map(math.isfinite, state)) else ()
