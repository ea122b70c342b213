"""How sure is each ratio?  A forest plot: one row a reading, its interval against no change."""

import math
from collections.abc import Iterable, Sequence

from trainperf.comparison.results import Comparison, ReadingChange
from trainperf.core.formatting.html.markup import Markup, paragraph, table
from trainperf.core.formatting.html.scales import Axis
from trainperf.reports.comparison.rows import compared, row


_FARTHEST = 4.0
"""Ratios beyond this, or its inverse, are drawn at the edge."""

_NEAREST = 1.1
"""The axis reaches at least so far, so that noise does not look like a gulf."""

_TICKS = (0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
_COARSE = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Those for which a narrow page has room."""

_APART = 0.08
"""Share of the axis between two ticks that can be read."""

_KINDS = {"faster": "good", "slower": "bad"}


def forest(comparison: Comparison) -> Markup:
    """The readings that both sides have, each with its interval; empty if there are none."""
    found = compared(comparison)
    if not found:
        return Markup("")
    axis = _axis(found)
    head = ("reading", "before", "after", _head(axis), "after / before", "\u00a0")
    rows = [_row(one, axis) for one in found]
    said = (
        "The bar is the 95 % interval of after / before, the dashed line no change. Green is "
        "faster, red slower; grey is no clear change, or neither. A ring has no interval; beyond "
        f"{_FARTHEST:g} × a mark is at the edge."
    )
    return Markup(table(head, rows, words=(0, 3, 5)) + paragraph(said, "soft small"))


def track(marks: Iterable[Markup], unity: float) -> Markup:
    """A cell's line of marks, with no change at *unity*, a share of its width."""
    middle = f'<span class="unity" style="left:{unity * 100:.1f}%"></span>'
    return Markup(f'<div class="forest">{middle}{"".join(marks)}</div>')


def reach(low: float, high: float, kind: str) -> Markup:
    """A bar on it from one share of its width to another; *kind* is its class of the style."""
    left, wide = low * 100, (high - low) * 100
    return Markup(f'<span class="reach {kind}" style="left:{left:.1f}%;width:{wide:.1f}%"></span>')


def _axis(found: Sequence[ReadingChange]) -> Axis:
    ends = [end for one in found for end in (one.low, one.high, one.ratio) if end]
    low = min([1 / _NEAREST, *ends])
    high = max([_NEAREST, *ends])
    return Axis(
        low=max(low, 1 / _FARTHEST) / 1.03, high=min(high, _FARTHEST) * 1.03, logarithmic=True
    )


def _head(axis: Axis) -> Markup:
    """The ticks, those nearest to no change first where there is no room for all."""
    taken: list[float] = []
    spans = []
    for tick in sorted(_TICKS, key=lambda tick: abs(math.log(tick))):
        at = axis.at(tick)
        inside = axis.low <= tick <= axis.high
        if inside and all(abs(at - other) >= _APART for other in taken):
            taken.append(at)
            kind = "tick" if tick in _COARSE else "tick fine"
            spans.append(f'<span class="{kind}" style="left:{at * 100:.1f}%">{tick:g}</span>')
    return Markup(f'<div class="forest">{"".join(spans)}</div>')


def _row(one: ReadingChange, axis: Axis) -> tuple[str | Markup, ...]:
    said = row(one)
    return (said.label, said.before, said.after, _drawn(one, axis), said.ratio, said.verdict)


def _drawn(one: ReadingChange, axis: Axis) -> Markup:
    kind = _KINDS.get(one.verdict or "", "even")
    marks = []
    if one.low is not None and one.high is not None:
        marks.append(reach(axis.at(one.low), axis.at(one.high), kind))
    if one.ratio:
        ring = "" if one.low is not None else " ring"
        at = axis.at(one.ratio) * 100
        marks.append(Markup(f'<span class="spot {kind}{ring}" style="left:{at:.1f}%"></span>'))
    return track(marks, axis.at(1.0))
