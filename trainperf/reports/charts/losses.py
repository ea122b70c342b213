"""Losses of two runs at equal work, as curves."""

from collections.abc import Sequence

import numpy as np

from trainperf.analysis.summary.loss_parity import Parity, Unit
from trainperf.comparison.loss_parity import LossCurve
from trainperf.reports.charts.lines import Line, LineChart, line_chart
from trainperf.reports.layout.document import Chart


_MOST_REPEATS = 5
"""Lines a side: more cannot be told apart."""

_GROUPS = 200
"""Points of a line."""


def losses(
    sides: Sequence[Sequence[LossCurve]], parity: Parity, names: Sequence[str]
) -> list[Chart]:
    """The curves of the repeats of each side, at equal work; none where they are not compared."""
    unit, shaded = parity.unit, None
    every = [
        line(curve, unit, name)
        for name, side in zip(names, sides, strict=True)
        for curve in side[:_MOST_REPEATS]
    ]
    drawn = [each for each in every if each is not None]
    if unit is None or not drawn:
        return []
    if parity.since is not None and parity.work is not None:
        shaded = (parity.since, parity.work)
    what = f"Loss, mean over neighbouring steps, at equal {unit}; the grey range was compared."
    chart = LineChart(
        title="", what=what, unit="", lines=drawn, across=unit, level=True, shaded=shaded
    )
    return [line_chart(chart, height=220)]


def line(losses: LossCurve, unit: Unit | None, label: str = "") -> Line | None:
    """Mean loss over the work done, in groups of equal work; `None` without a loss."""
    work = None if unit is None else losses.work.get(unit)
    finite = np.isfinite(losses.loss)
    if work is None or not finite.any() or work[-1] <= work[0]:
        return None
    loss, done = losses.loss[finite], work[finite]
    places = ((done - work[0]) / (work[-1] - work[0]) * (_GROUPS - 1)).astype(np.int64)
    numbers = np.bincount(places)
    x, y = (np.bincount(places, each)[numbers > 0] / numbers[numbers > 0] for each in (done, loss))
    return Line(label=label, x=x, y=y)
