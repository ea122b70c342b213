"""Pictures of a recipe as SVG: verdicts with their intervals, plots, timelines.

A picture stands by itself, with its own colours for light and dark: in a page of ours as in the
documentation.
"""

import math
from collections.abc import Iterable, Sequence
from html import escape

from recipes.cases.case import Case, Plot, Quantity, Timeline
from recipes.cases.text import shown
from recipes.cases.verdicts import EQUAL, factor_of
from trainperf.core.formatting.html.figures import Axis
from trainperf.core.formatting.html.markup import Markup


WIDE, ROW, LEFT, RIGHT, TOP = 780, 24, 190, 185, 34
TALL = 260
"""Height of a plot's area."""

_COLOURS = ("#2f6fde", "#c2410c", "#0f7b55", "#8b3fb5", "#b7791f", "#52606d")
_VERDICTS = {"holds": "v0", "does not hold here": "v1", "no difference": "v2", "cannot tell": "v3"}

_STYLE = (
    "<style>"
    ".r-card{fill:#fff}.r-ink{fill:#1f2933}.r-soft{fill:#52606d}.r-line{stroke:#cbd2d9;fill:none}"
    ".r-unit{stroke:#52606d;stroke-dasharray:3 3}.r-even{fill:#52606d;fill-opacity:.13}"
    ".v0{fill:#0f7b55;stroke:#0f7b55}.v1{fill:#c2410c;stroke:#c2410c}"
    ".v2{fill:#2f6fde;stroke:#2f6fde}.v3{fill:#8a94a0;stroke:#8a94a0}"
    "@media (prefers-color-scheme:dark){.r-card{fill:#1b2127}.r-ink{fill:#e4e7eb}"
    ".r-soft{fill:#9aa5b1}.r-line{stroke:#3e4c59}.r-unit{stroke:#9aa5b1}"
    ".v0{fill:#3fb488;stroke:#3fb488}.v1{fill:#f08a5b;stroke:#f08a5b}"
    ".v2{fill:#7ba7f5;stroke:#7ba7f5}}"
    "</style>"
)


def verdicts(cases: Sequence[Case]) -> Markup:
    """A row per measured case: its ratio, the interval, and the band of *no difference*."""
    rows = [(case, row) for case in cases if (row := case.deciding) is not None and row.ratio]
    if not rows:
        return Markup("")
    ends = [end for _, row in rows for end in (row.low, row.high, row.ratio) if end]
    axis = Axis(low=min([0.5, *ends]) / 1.1, high=max([2.0, *ends]) * 1.1, logarithmic=True)
    bottom = TOP + ROW * len(rows)
    parts = [_band(axis, bottom), *_scale(axis, bottom)]
    for place, (case, row) in enumerate(rows):
        y = TOP + ROW * place + ROW / 2
        kind = _VERDICTS.get(case.verdict, "v3")
        low, high, middle = (
            _x(axis, end or row.ratio or 1.0) for end in (row.low, row.high, row.ratio)
        )
        parts.append(_text(LEFT - 12, y + 4, case.heading, "r-ink", "end"))
        parts.append(
            f'<path class="{kind}" d="M{low:.1f} {y}H{high:.1f}" stroke-width="3"/>'
            f'<circle class="{kind}" cx="{middle:.1f}" cy="{y}" r="4.5"/>'
        )
        words = f"{factor_of(row.ratio or 1.0)} {case.verdict}"
        parts.append(_text(WIDE - RIGHT + 10, y + 4, words, "r-soft"))
    label = "Ratio of before to after of each claim, with its 95 % interval; right of 1 is better"
    return _picture(bottom + 26, label, parts)


def plot(drawn: Plot) -> Markup:
    """Lines with their points on two axes."""
    points = [point for line in drawn.lines for point in line.points]
    if not points:
        return Markup("")
    across = _axis([x for x, _ in points], logarithmic=drawn.log_across)
    up = _axis([y for _, y in points], logarithmic=drawn.log_up)
    left, bottom, right = 84, TOP + TALL, WIDE - 20
    parts = []
    for value in up.ticks():
        y = bottom - up.at(value) * TALL
        parts.append(f'<path class="r-line" d="M{left} {y:.1f}H{right}"/>')
        parts.append(_text(left - 8, y + 4, _tick(value, drawn.up_unit), "r-soft", "end"))
    for value in across.ticks():
        x = left + across.at(value) * (right - left)
        parts.append(_text(x, bottom + 18, _tick(value, drawn.across_unit), "r-soft", "middle"))
    for place, line in enumerate(drawn.lines):
        colour = _COLOURS[place % len(_COLOURS)]
        ends = [
            (left + across.at(x) * (right - left), bottom - up.at(y) * TALL) for x, y in line.points
        ]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in ends)
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in ends
        )
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}')
    parts.append(_text(left, TOP - 14, drawn.up, "r-soft"))
    parts.append(_text((left + right) / 2, bottom + 36, drawn.across, "r-soft", "middle"))
    parts += _keys((line.name for line in drawn.lines), bottom + 56)
    return _picture(bottom + 70, drawn.title, parts)


def timeline(drawn: Timeline) -> Markup:
    """A lane per thread or stream, in bars."""
    spans = [span for lane in drawn.lanes for span in lane.spans]
    if not spans:
        return Markup("")
    axis = Axis(low=0.0, high=max(begin + took for begin, took, _ in spans))
    names = list(dict.fromkeys(label for _, _, label in spans))
    room, bottom = WIDE - LEFT - 20, TOP + ROW * len(drawn.lanes)
    parts = []
    for place, lane in enumerate(drawn.lanes):
        y = TOP + ROW * place
        parts.append(_text(LEFT - 12, y + ROW / 2 + 4, lane.name, "r-ink", "end"))
        for begin, took, label in lane.spans:
            wide = max(axis.at(begin + took) - axis.at(begin), 0.001) * room
            colour = _COLOURS[names.index(label) % len(_COLOURS)]
            parts.append(
                f'<rect x="{LEFT + axis.at(begin) * room:.1f}" y="{y + 3}" width="{wide:.1f}" '
                f'height="{ROW - 6}" fill="{colour}"><title>{escape(label)}</title></rect>'
            )
    for value in axis.ticks():
        x = LEFT + axis.at(value) * room
        parts.append(_text(x, bottom + 16, _tick(value, "s"), "r-soft", "middle"))
    return _picture(bottom + 50, drawn.title, [*parts, *_keys(names, bottom + 38)])


def _axis(values: Sequence[float], *, logarithmic: bool) -> Axis:
    low, high = min(values), max(values)
    if logarithmic and low > 0:
        return Axis(low=low / 1.1, high=high * 1.1, logarithmic=True)
    return Axis(low=min(0.0, low), high=high * 1.04 or 1.0)


def _tick(value: float, unit: Quantity) -> str:
    return "0" if value == 0 else shown(value, unit)


def _band(axis: Axis, bottom: float) -> str:
    """Where there is no difference, and the line of 1."""
    low, high, unit = (_x(axis, end) for end in (1 / (1 + EQUAL), 1 + EQUAL, 1.0))
    return (
        f'<rect class="r-even" x="{low:.1f}" y="{TOP}" width="{high - low:.1f}" '
        f'height="{bottom - TOP}"/><path class="r-unit" d="M{unit:.1f} {TOP}V{bottom}"/>'
    )


def _scale(axis: Axis, bottom: float) -> Iterable[str]:
    yield _text(LEFT - 12, TOP - 12, "before / after", "r-soft", "end")
    for value in axis.ticks():
        x = _x(axis, value)
        yield f'<path class="r-line" d="M{x:.1f} {TOP}V{bottom}" stroke-opacity=".5"/>'
        yield _text(x, TOP - 12, f"{value:g}×", "r-soft", "middle")


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.at(value) * (WIDE - LEFT - RIGHT)


def _keys(names: Iterable[str], y: float) -> list[str]:
    parts, x = [], 84.0
    for place, name in enumerate(names):
        colour = _COLOURS[place % len(_COLOURS)]
        parts.append(f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 15, y, name, "r-soft"))
        x += 34 + 6.6 * len(name)
    return parts


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12">'
        f"{escape(words)}</text>"
    )


def _picture(height: float, label: str, parts: Iterable[str]) -> Markup:
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {math.ceil(height)}" '
        f'role="img" font-family="system-ui, sans-serif" style="max-width:100%">{_STYLE}'
        f"<title>{escape(label)}</title>"
        f'<rect class="r-card" width="100%" height="100%" rx="8"/>{"".join(parts)}</svg>'
    )
