"""Figures without a script: axes with round ticks, marks as SVG that stretches, words as text.

A figure is as wide as the page and so many pixels high: lines keep their width and words their size
on any screen.  Inside, x runs from 0 to `WIDE` and y from the top down in pixels.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from trainperf.core.formatting.html.markup import Markup, tag, text
from trainperf.core.formatting.html.palette import COLOURS
from trainperf.core.formatting.units import Scale


_LEAST_POWERS = 3
"""Ticks that are enough on a logarithmic axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """From values to shares of the axis, 0 at its beginning and 1 at its end."""

    low: float
    high: float
    unit: Scale = field(default_factory=Scale)
    logarithmic: bool = False
    whole: bool = False
    """Whether only whole numbers are written: there is no half a step."""

    def at(self, value: float) -> float:
        """Where a value is; beyond the ends at the ends."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = (math.log10(max(end, 1e-300)) for end in (low, high, value))
        share = 0.5 if high == low else (value - low) / (high - low)
        return min(max(share, 0.0), 1.0)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values between the ends."""
        if self.logarithmic:
            for digits in ((1,), (1, 2, 5)):
                values = _powers(self.low, self.high, digits)
                if len(values) >= _LEAST_POWERS:
                    return values[:: math.ceil(len(values) / (most + 1))]
        low, high = self.low * self.unit.per_one, self.high * self.unit.per_one
        if high <= low:
            return [self.low]
        power = 10.0 ** math.floor(math.log10((high - low) / most))
        step = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= (high - low) / most)
        # An end that is off by rounding still has its tick.
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        values = [step * number / self.unit.per_one for number in range(first, last + 1)]
        return [value for value in values if not self.whole or value == int(value)]


def _powers(low: float, high: float, digits: Sequence[int]) -> list[float]:
    """Powers of ten in the range, times each of the *digits*."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high) + 1e-9) + 1)
    every = (digit * 10.0**power for power in powers for digit in digits)
    return [value for value in every if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


WIDE = 1000
LANE = 14
"""Height of a row of marks."""

_NEAR = 0.04
"""Share of the width within which a tick's words are kept from sticking out."""

Point = tuple[float, float]
Mark = tuple[float, float, str, str]
"""Of a lane: where on `WIDE` it begins, how wide it is, its class of the style, and what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A picture's axes."""

    across: Axis
    up: Axis
    height: int = 220

    def x(self, value: float) -> float:
        """Where a value of the horizontal axis is."""
        return self.across.at(value) * WIDE

    def y(self, value: float) -> float:
        """Where a value of the vertical axis is."""
        return (1 - self.up.at(value)) * self.height

    def picture(self, label: str, marks: Iterable[Markup], *, across: str = "") -> Markup:
        """The marks on their axes.

        Args:
            label: What the picture shows, for those who cannot see it.
            marks: What is drawn, the lowest first.
            across: Name of the horizontal axis; empty where the ticks say it.
        """
        ups = [(self.y(value), self.up.unit.tick(value)) for value in self.up.ticks()]
        grid = [Markup(f'<path class="grid-line" d="M0 {y:.1f}H{WIDE}"/>') for y, _ in ups]
        base = Markup(f'<path class="base" d="M0 {self.height}H{WIDE}"/>')
        ticks = [(self.across.at(v), self.across.unit.tick(v)) for v in self.across.ticks()]
        rows = [
            _column(ups),
            _stretched(self.height, [*grid, *marks, base], label),
            tag("div", *(_tick(share, words) for share, words in ticks), kind="across"),
        ]
        return tag(
            "div",
            *rows,
            *([tag("p", text(across), kind="axis-name")] if across else []),
            kind="plot",
        )


def lanes(rows: Iterable[tuple[str, Sequence[Mark]]]) -> Markup:
    """Rows of marks with their names, one below the other."""
    placed = [(place * LANE, name, row) for place, (name, row) in enumerate(rows)]
    names = [(top + LANE / 2, name) for top, name, _ in placed]
    marks = (
        box((start, top + 2), (max(wide, 1.5), LANE - 5), kind, label)
        for top, _, row in placed
        for start, wide, kind, label in row
    )
    picture = _stretched(len(names) * LANE, marks)
    return tag("div", _column(names), picture, kind="plot lanes") if names else Markup("")


def bar(
    parts: Sequence[tuple[float, int, str]], label: str, whole: float = 0.0, height: int = 30
) -> Markup:
    """One bar of parts from left to right: amount, colour (of the phases), and what is said.

    It is as wide as the page, or as its share of the *whole* if that is more.
    """
    whole = max(whole, sum(amount for amount, _, _ in parts))
    if whole <= 0:
        return Markup("")
    begins = accumulate((amount for amount, _, _ in parts), initial=0.0)
    marks = [
        box(
            (begin / whole * WIDE, 0.0),
            (amount / whole * WIDE, height),
            f"f{colour % COLOURS}",
            hint,
        )
        for begin, (amount, colour, hint) in zip(begins, parts, strict=False)
    ]
    return tag("div", _stretched(height, marks, label), kind="plot bare")


def box(corner: Point, size: Point, kind: str, label: str = "") -> Markup:
    """A rectangle from its upper left corner, in a class of the style; never quite invisible."""
    title = tag("title", text(label)) if label else ""
    return Markup(
        f'<rect class="{kind}" x="{corner[0]:.1f}" y="{corner[1]:.1f}" '
        f'width="{max(size[0], 0.6):.1f}" height="{max(size[1], 0.0):.1f}">{title}</rect>'
    )


def line(points: Sequence[Point], kind: str, *, closed: bool = False) -> Markup:
    """A line through points, or what they enclose; a class of the style gives its colour."""
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    kind = kind if closed else f"curve {kind}"
    return Markup(f'<path class="{kind}" d="M{way}{"Z" * closed}"/>') if points else Markup("")


def keys(names: Iterable[tuple[str, str]]) -> Markup:
    """What the colours stand for: a name and a class of the style each."""
    items = [
        Markup(f'<li><span class="key {kind}"></span>{text(name)}</li>') for name, kind in names
    ]
    return tag("ul", *items, kind="keys") if items else Markup("")


def _stretched(height: int, marks: Iterable[Markup], label: str = "") -> Markup:
    """Marks as wide as the page; what has no *label* is not read aloud."""
    role = f'role="img" aria-label="{text(label)}"' if label else 'aria-hidden="true"'
    return Markup(
        f'<div class="area" style="height:{height}px"><svg viewBox="0 0 {WIDE} {height}" '
        f'preserveAspectRatio="none" {role}>{"".join(marks)}</svg></div>'
    )


def _column(names: Iterable[tuple[float, str]]) -> Markup:
    """Words left of a picture, each at its height."""
    spans = (Markup(f'<span style="top:{y:.1f}px">{text(name)}</span>') for y, name in names)
    return tag("div", *spans, kind="up")


def _tick(share: float, label: str) -> Markup:
    kind = ' class="first"' if share < _NEAR else ' class="last"' if share > 1 - _NEAR else ""
    return Markup(f'<span{kind} style="left:{share * 100:.2f}%">{text(label)}</span>')
