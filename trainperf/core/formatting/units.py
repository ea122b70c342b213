"""Numbers in words: units, digits and phrases for findings and reports.

Everything below reports is in SI; this is the one place that knows milliseconds and GiB.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from trainperf.core.choice import first_that_holds


_UNITS = {
    "s": (
        (7197.0, 1 / 3600, "h"),
        (599.5, 1 / 60, "min"),
        (0.9995, 1.0, "s"),
        (0.9995e-3, 1e3, "ms"),
        (0.0, 1e6, "µs"),
    ),
    "B": (
        (2.0**40, 0.5**40, "TiB"),
        (2.0**30, 0.5**30, "GiB"),
        (2.0**20, 0.5**20, "MiB"),
        (2.0**10, 0.5**10, "KiB"),
        (0.0, 1.0, "B"),
    ),
    "B/s": (
        (1e12, 1e-12, "TB/s"),
        (1e9, 1e-9, "GB/s"),
        (1e6, 1e-6, "MB/s"),
        (1e3, 1e-3, "kB/s"),
        (0.0, 1.0, "B/s"),
    ),
    "FLOP": (
        (1e12, 1e-12, "TFLOP"),
        (1e9, 1e-9, "GFLOP"),
        (1e6, 1e-6, "MFLOP"),
        (0.0, 1.0, "FLOP"),
    ),
    "1": ((0.0, 100.0, "%"),),
    "": ((1e12, 1e-12, "T"), (1e9, 1e-9, "G"), (1e6, 1e-6, "M"), (1e3, 1e-3, "k"), (0.0, 1.0, "")),
}
"""By the kind of amount: from how much on a unit is used, how many of it are one, and its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One unit and number of decimals for several amounts that are read together."""

    per_one: float = 1.0
    unit: str = ""
    decimals: int = 0

    @classmethod
    def of(cls, amount: float, kind: str = "s") -> "Scale":
        """The scale in which *amount* has three digits.

        Args:
            amount: In units of that kind.
            kind: `s` for durations, `B`, `B/s`, `FLOP`, `1` for shares of one; others are plain
                numbers.
        """
        units = _UNITS.get(kind, _UNITS[""])
        _, per_one, unit = next((row for row in units if abs(amount) >= row[0]), units[-1])
        # There is no half a byte, and no half an operation.
        whole = per_one == 1 and kind != "s"
        return cls(per_one=per_one, unit=unit, decimals=0 if whole else _decimals(amount * per_one))

    @classmethod
    def fine(cls, seconds: float) -> "Scale":
        """That of a duration with at least one decimal: for the parts of *seconds*."""
        scale = cls.of(seconds)
        return replace(scale, decimals=max(1, scale.decimals))

    def number(self, amount: float) -> str:
        """The amount in this unit, without the unit."""
        return f"{amount * self.per_one:,.{self.decimals}f}"

    def say(self, amount: float) -> str:
        """The amount in this unit."""
        return f"{self.number(amount)} {self.unit}"

    def tick(self, amount: float) -> str:
        """A round amount in this unit, with the digits that it has."""
        return f"{amount * self.per_one:,.6g} {self.unit}".rstrip() if amount else "0"


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
    return first_that_holds(
        ("< 0.1 %", 0 < percent < 0.1),
        (f"{percent:.1f} %", 0 < abs(percent) < 9.95),
        (f"{percent:.0f} %", True),
    )


def fine_share(fraction: float) -> str:
    """A fraction in per cent with one decimal, for columns."""
    return f"{fraction * 100:.1f} %"


def count(number: float) -> str:
    """An amount with thousands separated; below a hundred to three digits."""
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:,.{_decimals(number)}f}"


def size(amount: float) -> str:
    """Bytes in binary units, e.g. `1.50 GiB`."""
    return Scale.of(amount, "B").say(amount)


def rate(bytes_per_s: float) -> str:
    """Bytes per second in decimal units, as links are sold, e.g. `12.3 GB/s`."""
    return Scale.of(bytes_per_s, "B/s").say(bytes_per_s)


def times(factor: float) -> str:
    """A factor, e.g. `1.58×`."""
    return f"{factor:.0f}×" if factor >= 9.995 else f"{factor:.2f}×"


def as_fast(speedup: float, low: float, high: float, of: str = "") -> str:
    """A measured speed-up with its interval, e.g. `1.23× as fast (95 % CI 1.20–1.26)`."""
    return f"{times(speedup)} as fast{of} (95 % CI {low:.3g}–{high:.3g})"


def at_most(factor: float) -> str:
    """An upper bound of a gain, e.g. `at most 1.58× faster`."""
    return f"at most {times(factor)} faster"


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


def _decimals(number: float) -> int:
    size_ = abs(number)
    return 0 if size_ >= 99.95 else 1 if size_ >= 9.995 else 2
