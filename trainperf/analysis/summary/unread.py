"""Steps of a run of days that are not read: their counts and sums, which are exact.

Medians, shares and rates stand on the steps that are read.  What is added up over a fit, and the
largest of something, is known of the others too, by the index of their packed part.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from trainperf.analysis.run.journal import Journal
from trainperf.core.phases import DISQUALIFYING, TAGS
from trainperf.core.stats.reductions import Maximum, Reduction, Total
from trainperf.core.steps.stretches import Stretches
from trainperf.meters import Meter
from trainperf.meters.fold import Fold


_NS_PER_S = 1e9


def count_unread(folds: Sequence[Fold], journals: Iterable[Journal]) -> None:
    """Add the unread steps of each rank to its meters, as far as sums and maxima tell."""
    for fold, journal in zip(folds, journals, strict=True):
        for stretches in journal.unread:
            reductions = {
                meter.name: added
                for meter in fold.meters
                if (added := _added(meter, fold.reduction(meter.name), stretches)) is not None
            }
            steps, steady = (int(stretches[name].sum()) for name in ("steps", "steady"))
            fold.add_unread(steps, steady, reductions)


def unread_steps(journal: Journal) -> int:
    """How many steps of a rank are not read."""
    return sum(int(stretches["steps"].sum()) for stretches in journal.unread)


def unread_exclusions(journal: Journal) -> dict[str, int]:
    """Tag to the unread steps that are excluded for it, by the rank's own tags."""
    counts: dict[str, int] = {}
    for label in (tag.label for tag in TAGS if tag & DISQUALIFYING):
        number = sum(int(stretches[f"tag:{label}"].sum()) for stretches in journal.unread)
        if number:
            counts[label] = number
    return counts


def _added(meter: Meter, observed: Reduction | None, stretches: Stretches) -> Reduction | None:
    """What the sums of a fact add to a meter that adds up, or takes the largest."""
    if not meter.needs or not stretches.has(f"sum:{meter.needs[0]}"):
        return None
    fact, steps = meter.needs[0], int(stretches["steps"].sum())
    if isinstance(observed, Total):
        scale = _NS_PER_S if meter.unit == "s" and fact.endswith("_ns") else 1.0
        return Total(float(stretches[f"sum:{fact}"].sum()) / scale, steps)
    if isinstance(observed, Maximum):
        most = stretches[f"most:{fact}"]
        most = most[np.logical_not(np.isnan(most))]
        return Maximum(float(most.max()), steps) if len(most) else None
    return None


def unread_of(journal: Journal) -> Stretches | None:
    """All of a rank, in order; `None` where every step is read."""
    return Stretches.joined(journal.unread)
