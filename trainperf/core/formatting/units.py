"""Numbers in words: units, digits and phrases for findings and reports.

Everything below reports is in SI; this is the one place that knows milliseconds and GiB.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby


_TIMES = (
    (0.9995e-3, 1e6, "µs"),
    (0.9995, 1e3, "ms"),
    (599.5, 1.0, "s"),
    (7197.0, 1 / 60, "min"),
    (math.inf, 1 / 3600, "h"),
)
_PREFIXES = {
    "B": ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")),
    "B/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")),
    "FLOP": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1, "FLOP")),
    "": ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")),
}
"""By the kind of amount: from how much on a unit is used, and what it is called."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One unit and number of decimals for several durations that are read together."""

    per_second: float
    unit: str
    decimals: int

    @classmethod
    def of(cls, seconds: float) -> "Scale":
        """The scale in which *seconds* has three digits."""
        size = abs(seconds)
        shorter = ((factor, name) for below, factor, name in _TIMES if size < below)
        per_second, unit = next(shorter, _TIMES[-1][1:])
        return cls(per_second=per_second, unit=unit, decimals=_decimals(size * per_second))

    @classmethod
    def fine(cls, seconds: float) -> "Scale":
        """The same with at least one decimal: for the parts of *seconds*."""
        scale = cls.of(seconds)
        return replace(scale, decimals=max(1, scale.decimals))

    def number(self, seconds: float) -> str:
        """The duration in this unit, without the unit."""
        return f"{seconds * self.per_second:,.{self.decimals}f}"

    def say(self, seconds: float) -> str:
        """The duration in this unit."""
        return f"{self.number(seconds)} {self.unit}"


def duration(seconds: float) -> str:
    """A duration to three digits, e.g. `55.1 ms`."""
    return "0 s" if seconds == 0 else Scale.of(seconds).say(seconds)


def confidence_interval(value: float, low: float | None, high: float | None) -> str:
    """The interval of a duration in its own unit, e.g. ` (95 % CI 54.8–55.4)`; else empty.

    Also empty where the ends cannot be told apart at the digits that are shown.
    """
    scale = Scale.of(value)
    if low is None or high is None or scale.number(low) == scale.number(high):
        return ""
    return f" (95 % CI {scale.number(low)}–{scale.number(high)})"


def share(fraction: float) -> str:
    """A fraction in whole per cent, e.g. `37 %`; with a decimal below ten."""
    percent = fraction * 100
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.0f} %" if abs(percent) >= 9.95 or percent == 0 else f"{percent:.1f} %"


def fine_share(fraction: float) -> str:
    """A fraction in per cent with one decimal, for columns."""
    return f"{fraction * 100:.1f} %"


def count(number: float) -> str:
    """An amount with thousands separated; below a hundred to three digits."""
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:,.{_decimals(number)}f}"


def prefixed(amount: float, kind: str) -> tuple[float, str]:
    """The unit in which an amount has three digits: its size, and its name.

    Args:
        amount: In units of that kind.
        kind: `B`, `B/s`, `FLOP`, or empty for a plain number.
    """
    units = _PREFIXES[kind]
    return next((pair for pair in units if abs(amount) >= pair[0]), units[-1])


def size(amount: float) -> str:
    """Bytes in binary units, e.g. `1.50 GiB`."""
    return _in_unit(amount, "B")


def rate(bytes_per_s: float) -> str:
    """Bytes per second in decimal units, as links are sold, e.g. `12.3 GB/s`."""
    return _in_unit(bytes_per_s, "B/s")


def times(factor: float) -> str:
    """A factor, e.g. `1.58×`."""
    return f"{factor:.0f}×" if factor >= 9.995 else f"{factor:.2f}×"


def as_fast(speedup: float, low: float, high: float, of: str = "") -> str:
    """A measured speed-up with its interval, e.g. `1.23× as fast (95 % CI 1.20–1.26)`."""
    return f"{times(speedup)} as fast{of} (95 % CI {low:.3g}–{high:.3g})"


def at_most(factor: float) -> str:
    """An upper bound of a gain, e.g. `at most 1.58× faster`."""
    return f"at most {times(factor)} faster"


def scale_factor(scale: float) -> str:
    """A loss scale: as a power of two where it is one, e.g. `2¹¹`."""
    mantissa, exponent = math.frexp(scale)
    if mantissa == 0.5:
        return "2" + str(exponent - 1).translate(_SUPERSCRIPTS)
    return f"{scale:g}"


def words(label: str) -> str:
    """The label of a phase, gap or tag in words, e.g. `data wait`."""
    return "warm-up" if label == "warmup" else label.replace("_", " ")


def step_range(first: int, last: int) -> str:
    """The steps from *first* to *last*, e.g. `step 7`, `steps 1,200–1,202`."""
    return f"step {first:,}" if last <= first else f"steps {first:,}–{last:,}"


def plural(number: int, noun: str) -> str:
    """A number of things, e.g. `1 rank`, `2 ranks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ranks_named(ranks: Sequence[int], most: int = 4) -> str:
    """Ranks in a sentence, neighbours together: `rank 3`, `ranks 2 and 8–15`, at most so many."""
    runs = runs_of(ranks)
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        return f"rank {ranks[0]}"
    spans = [f"{first}–{last}" if last > first else str(first) for first, last in runs]
    left = sum(1 + last - first for first, last in runs[most:])
    shown = [*spans[:most], f"{left:,} more"] if left else spans
    return f"ranks {', '.join(shown[:-1])}{' and ' if len(shown) > 1 else ''}{shown[-1]}"


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of whole numbers that follow each other: 0, 1, 2 and 16 are 0–2 and 16–16."""
    in_order = enumerate(sorted(set(numbers)))
    groups = groupby(in_order, lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in group] for _, group in groups]
    return [(run[0], run[-1]) for run in runs]


def _in_unit(amount: float, kind: str) -> str:
    unit, name = prefixed(amount, kind)
    return f"{amount / unit:.{_decimals(amount / unit) if unit > 1 else 0}f} {name}"


def _decimals(number: float) -> int:
    size_ = abs(number)
    return 0 if size_ >= 99.95 else 1 if size_ >= 9.995 else 2
