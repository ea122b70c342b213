"""How does a loss fall over the work done?  Means over groups of equal work."""

import numpy as np

from trainperf.analysis.summary.loss_parity import LossCurve, Unit


_GROUPS = 200


def line(found: LossCurve, unit: Unit) -> list[tuple[float, float]]:
    """Work done and mean loss of each group; only where there is a loss."""
    if unit not in found.work:
        return []
    work = found.work[unit]
    known = np.isfinite(found.loss)
    if not known.any() or work[-1] <= work[0]:
        return []
    loss, done = found.loss[known], work[known]
    places = ((done - work[0]) / (work[-1] - work[0]) * (_GROUPS - 1)).astype(np.int64)
    numbers = np.bincount(places, minlength=_GROUPS)
    there = np.flatnonzero(numbers)
    means = np.bincount(places, weights=loss, minlength=_GROUPS)[there] / numbers[there]
    at = np.bincount(places, weights=done, minlength=_GROUPS)[there] / numbers[there]
    return list(zip(at.tolist(), means.tolist(), strict=True))
