"""Axes of figures: where a value is, and which round values are labelled."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainperf.core.formatting.units import Scale


_LEAST_POWERS = 3
"""Ticks that are enough on a logarithmic axis."""

_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a value is multiplied by before it is written, and what is written behind it."""

    per_one: float = 1.0
    name: str = ""

    @classmethod
    def of_seconds(cls, largest_s: float) -> "Unit":
        """The unit in which durations up to that one are written."""
        scale = Scale.of(largest_s)
        return cls(per_one=scale.per_second, name=f" {scale.unit}")

    @classmethod
    def of_bytes(cls, largest: float) -> "Unit":
        """The binary unit for amounts up to that one."""
        unit, name = next((pair for pair in _BINARY if largest >= pair[0]), (1, "B"))
        return cls(per_one=1 / unit, name=f" {name}")

    @classmethod
    def of_shares(cls) -> "Unit":
        """Per cent."""
        return cls(per_one=100.0, name=" %")

    def say(self, value: float) -> str:
        """A round value."""
        if value == 0:
            return "0"
        scaled = float(f"{value * self.per_one:.6g}")
        return f"{scaled:,.0f}{self.name}" if scaled == int(scaled) else f"{scaled:g}{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """From values to shares of the axis, 0 at its beginning and 1 at its end."""

    low: float
    high: float
    unit: Unit = field(default_factory=Unit)
    logarithmic: bool = False
    whole: bool = False
    """Whether only whole numbers are written: there is no half a step."""
    say: Callable[[float], str] | None = None
    """What is written at a tick; the value in its unit by default."""

    def at(self, value: float) -> float:
        """Where a value is; beyond the ends at the ends."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = (math.log10(max(end, 1e-300)) for end in (low, high, value))
        share = 0.5 if high == low else (value - low) / (high - low)
        return 0.0 if share < 0.0 else min(share, 1.0)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values between the ends."""
        values = self._round(most)
        return [value for value in values if value == int(value)] if self.whole else values

    def _round(self, most: int) -> list[float]:
        if self.logarithmic:
            for digits in ((1,), (1, 2, 5)):
                values = _powers(self.low, self.high, digits)
                if len(values) >= _LEAST_POWERS:
                    return values[:: math.ceil(len(values) / (most + 1))]
        return self._even(most)

    def written(self, value: float) -> str:
        """A tick."""
        return self.unit.say(value) if self.say is None else self.say(value)

    def _even(self, most: int) -> list[float]:
        low, high = self.low * self.unit.per_one, self.high * self.unit.per_one
        span = high - low
        if span <= 0:
            return [self.low]
        power = 10.0 ** math.floor(math.log10(span / most))
        step = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= span / most)
        # An end that is off by rounding still has its tick.
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [step * number / self.unit.per_one for number in range(first, last + 1)]


def short(value: float) -> str:
    """A large number in few signs, e.g. `1.2 M`."""
    for unit, name in _DECIMAL:
        if abs(value) >= unit:
            return f"{value / unit:.4g} {name}"
    return f"{value:.4g}"


def moment(seconds: float) -> str:
    """A round duration in its own unit, e.g. `20 ms`."""
    return "0" if seconds == 0 else Unit.of_seconds(seconds).say(seconds)


def top(values: Sequence[float]) -> float:
    """The upper end of an axis that begins at 0 and holds these values."""
    return 1.04 * max(values, default=0.0) or 1.0


def _powers(low: float, high: float, digits: Sequence[int]) -> list[float]:
    """Powers of ten in the range, times each of the *digits*."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high) + 1e-9) + 1)
    every = (digit * 10.0**power for power in powers for digit in digits)
    return [value for value in every if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
