"""Losses of two runs at equal work, as curves."""

from collections.abc import Iterator, Sequence

import numpy as np

from trainperf.analysis.summary.loss_parity import LossCurve, Parity, Unit
from trainperf.core.formatting.html.figures import Axis, Frame, Point, box, curve, keys, short
from trainperf.core.formatting.html.markup import Markup, paragraph
from trainperf.reports.charts.step_times import SIDES
from trainperf.reports.layout.document import Chart


_MOST_REPEATS = 5
"""Lines a side: more cannot be told apart."""

_GROUPS = 200
"""Points of a line."""


def losses(
    sides: Sequence[Sequence[LossCurve]], parity: Parity, names: Sequence[str]
) -> list[Chart]:
    """The curves of the repeats of each side, at equal work; none where they are not compared."""
    unit = parity.unit
    lines = [] if unit is None else [[line(points, unit) for points in side] for side in sides]
    drawn = [point for side in lines for points in side for point in points]
    if unit is None or not drawn:
        return []
    frame = _frame(drawn)
    marks = list(_range(frame, parity))
    for colour, side in zip(SIDES, lines, strict=True):
        marks += [
            curve([(frame.x(x), frame.y(y)) for x, y in points], f"s{colour}")
            for points in side[:_MOST_REPEATS]
        ]
    picture = frame.picture("losses of both runs", marks, names=(unit, "loss"))
    shaded = " The shade is the range that was compared." if parity.work is not None else ""
    caption = f"Mean over neighbouring steps, at equal {unit}.{shaded}"
    named = keys((name, f"k{colour}") for name, colour in zip(names, SIDES, strict=True))
    return [Chart(Markup(picture + named + paragraph(caption, "soft small")))]


def _frame(drawn: Sequence[Point]) -> Frame:
    works, values = zip(*drawn, strict=True)
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.5
    return Frame(
        across=Axis(low=min(works), high=max(works), say=short),
        up=Axis(low=low - margin, high=high + margin, say=short),
        height=220,
    )


def _range(frame: Frame, parity: Parity) -> Iterator[Markup]:
    if parity.since is None or parity.work is None:
        return
    left, right = frame.x(parity.since), frame.x(parity.work)
    yield box((left, 0.0), (right - left, frame.height), "range", parity.why)


def line(losses: LossCurve, unit: Unit) -> list[tuple[float, float]]:
    """Work done and mean loss of each group; only where there is a loss."""
    if unit not in losses.work:
        return []
    work = losses.work[unit]
    finite = np.isfinite(losses.loss)
    if not finite.any() or work[-1] <= work[0]:
        return []
    loss, done = losses.loss[finite], work[finite]
    places = ((done - work[0]) / (work[-1] - work[0]) * (_GROUPS - 1)).astype(np.int64)
    numbers = np.bincount(places, minlength=_GROUPS)
    there = np.flatnonzero(numbers)
    means = np.bincount(places, weights=loss, minlength=_GROUPS)[there] / numbers[there]
    at = np.bincount(places, weights=done, minlength=_GROUPS)[there] / numbers[there]
    return list(zip(at.tolist(), means.tolist(), strict=True))
