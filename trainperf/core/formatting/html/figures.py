"""Figures without a script: axes with round ticks, marks as SVG that stretches, words as text.

A figure is as wide as the page and so many pixels high: lines keep their width and words their size
on any screen.  Inside, x runs from 0 to `WIDE` and y from the top down in pixels.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from trainperf.core.formatting.html.markup import Markup, tag, text
from trainperf.core.formatting.html.palette import COLOURS
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


WIDE = 1000
LANE = 14
"""Height of a row of marks."""

_NEAR = 0.04
"""Share of the width within which a tick's words are kept from sticking out."""

Point = tuple[float, float]


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

    def picture(
        self,
        label: str,
        marks: Iterable[Markup],
        *,
        names: tuple[str, str] = ("", ""),
        over: Iterable[Markup] = (),
    ) -> Markup:
        """The marks on their axes.

        Args:
            label: What the picture shows, for those who cannot see it.
            marks: What is drawn, the lowest first.
            names: Of the axes; empty where the ticks say it.
            over: Words on the picture, see `note`.
        """
        grid = [
            Markup(f'<path class="grid-line" d="M0 {self.y(value):.1f}H{WIDE}"/>')
            for value in self.up.ticks()
        ]
        base = f'<path class="base" d="M0 {self.height}H{WIDE}"/>'
        area = _stretched(self.height, [*grid, *marks, Markup(base)], label, over)
        # Nobody turns the head to read: the vertical axis is named above it.
        heading = tag("p", text(names[1]), kind="soft small") if names[1] else Markup("")
        rows = [self._up(), area, self._across()]
        if names[0]:
            rows.append(tag("p", text(names[0]), kind="axis-name"))
        return Markup(heading + tag("div", *rows, kind="plot"))

    def _up(self) -> Markup:
        ticks = [
            Markup(f'<span style="top:{self.y(value):.1f}px">{text(self.up.written(value))}</span>')
            for value in self.up.ticks()
        ]
        return tag("div", *ticks, kind="up")

    def _across(self) -> Markup:
        across = self.across
        ticks = (_tick(across.at(value), across.written(value)) for value in across.ticks())
        return tag("div", *ticks, kind="across")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A row of marks above a picture, on its horizontal axis."""

    name: str
    marks: tuple[tuple[float, float, str], ...]
    """Where on `WIDE` one begins, how wide it is, and what is said of it."""
    kinds: tuple[str, ...] = ()
    """Of slices of a timeline: the kind of each."""


def lanes(rows: Iterable[Lane]) -> Markup:
    """Rows of marks, one below the other."""
    names, marks, height = [], [], 0
    for row in rows:
        middle = height + LANE // 2
        names.append(f'<span style="top:{middle}px">{text(row.name)}</span>')
        classes = [f"kind-{kind}" for kind in row.kinds] or ["event"] * len(row.marks)
        marks += [
            box((start, height + 2), (max(wide, 1.5), LANE - 5), name, label)
            for (start, wide, label), name in zip(row.marks, classes, strict=True)
        ]
        height += LANE
    if not height:
        return Markup("")
    column = Markup(f'<div class="up">{"".join(names)}</div>')
    return tag("div", column, _stretched(height, marks), kind="plot lanes")


def bar(
    parts: Sequence[tuple[float, int, str]], label: str, whole: float = 0.0, height: int = 30
) -> Markup:
    """One bar of parts from left to right: amount, colour (of the phases), and what is said.

    It is as wide as the page, or as its share of the *whole* if that is more.
    """
    whole = max(whole, sum(amount for amount, _, _ in parts))
    if whole <= 0:
        return Markup("")
    marks, start = [], 0.0
    for amount, colour, hint in parts:
        wide = amount / whole * WIDE
        marks.append(box((start, 0.0), (wide, height), f"f{colour % COLOURS}", hint))
        start += wide
    return tag("div", _stretched(height, marks, label), kind="plot bare")


def box(corner: Point, size: Point, kind: str, label: str = "") -> Markup:
    """A rectangle from its upper left corner, in a class of the style; never quite invisible."""
    title = tag("title", text(label)) if label else ""
    return Markup(
        f'<rect class="{kind}" x="{corner[0]:.1f}" y="{corner[1]:.1f}" '
        f'width="{max(size[0], 0.6):.1f}" height="{max(size[1], 0.0):.1f}">{title}</rect>'
    )


def curve(points: Sequence[Point], kind: str) -> Markup:
    """A line through points; a class of the style gives its colour."""
    return Markup(f'<path class="curve {kind}" d="{_path(points)}"/>') if points else Markup("")


def area(points: Sequence[Point], kind: str) -> Markup:
    """What these points enclose."""
    return Markup(f'<path class="{kind}" d="{_path(points)}Z"/>') if points else Markup("")


def dot(point: Point, wide: float, kind: str, label: str) -> Markup:
    """A round point so many pixels wide that says what it is."""
    return Markup(
        f'<path class="dot {kind}" stroke-width="{wide:.1f}" '
        f'd="M{point[0]:.1f} {point[1]:.1f}h.01">{tag("title", text(label))}</path>'
    )


def upright(x: float, height: float) -> Markup:
    """A dashed line from top to bottom."""
    return Markup(f'<path class="mark" d="M{x:.1f} 0V{height}"/>')


def level(y: float) -> Markup:
    """A dashed line from left to right."""
    return Markup(f'<path class="mark" d="M0 {y:.1f}H{WIDE}"/>')


def note(x: float, y: float, label: str) -> Markup:
    """Words on a picture, next to a point: on whichever side there is more room."""
    side = "left" if x > 0.6 * WIDE else "right"
    style = f"left:{x / WIDE * 100:.2f}%;top:{y:.1f}px"
    return Markup(f'<span class="label {side}" style="{style}">{text(label)}</span>')


def keys(names: Iterable[tuple[str, str]]) -> Markup:
    """What the colours stand for: a name and a class of the style each."""
    items = [
        Markup(f'<li><span class="key {kind}"></span>{text(name)}</li>') for name, kind in names
    ]
    return tag("ul", *items, kind="keys") if items else Markup("")


def _stretched(
    height: int, marks: Iterable[Markup], label: str = "", over: Iterable[Markup] = ()
) -> Markup:
    """Marks as wide as the page, and words over them; what has no *label* is not read aloud."""
    role = f'role="img" aria-label="{text(label)}"' if label else 'aria-hidden="true"'
    return Markup(
        f'<div class="area" style="height:{height}px"><svg viewBox="0 0 {WIDE} {height}" '
        f'preserveAspectRatio="none" {role}>{"".join(marks)}</svg>{"".join(over)}</div>'
    )


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _tick(share: float, label: str) -> Markup:
    kind = ' class="first"' if share < _NEAR else ' class="last"' if share > 1 - _NEAR else ""
    return Markup(f'<span{kind} style="left:{share * 100:.2f}%">{text(label)}</span>')
