"""Figures of ranks at a point where they wait for each other, added up over steps."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import Phase
from trainperf.core.stats.quantiles import Distribution


Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointFigures:
    """What was added up at one point over steady steps; seconds, by place of the rank."""

    phase: Phase
    """In which the ranks wait there."""
    always: bool
    """Whether they are known to, and not only to issue collectives in it."""
    n: int
    wait_s: Numbers
    """Mean wait per rank."""
    phases_s: Numbers
    """Mean time per rank and phase, over the same steps."""
    late_steps: npt.NDArray[np.int64]
    """Steps in which the rank was the last one, clearly."""
    late: Mapping[int, Distribution]
    """By how much it then came after the typical other one."""
    step_s: float
    transfer_s: float
    lost_s: float
    even_s: float
    """Mean of what the last rank comes after the typical other one: saved if it did not."""
    held_s: Numbers
    """As *even_s*, by the last rank, and up to the first of those that it held up."""
    skews: Distribution | None
    whole_step: bool
    """Whether the ranks may have met at this very point before, within the step."""
    synchronous: bool


def beyond(values: Numbers) -> Numbers:
    """Each value beyond the median of the others."""
    n = len(values)
    if n < 2:
        return np.zeros(n)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    out = np.empty(n)
    # Without the value at place *p* of the order, the middle moves up where it stood below it.
    low, high = (n - 2) // 2, (n - 1) // 2
    for place, own in enumerate(order.tolist()):
        middle = ordered[low + (place <= low)] + ordered[high + (place <= high)]
        out[own] = values[own] - middle / 2
    return out


def merged(parts: Collection[Distribution]) -> Distribution | None:
    """All of them in one; `None` of none."""
    whole: Distribution | None = None
    for part in parts:
        whole = part if whole is None else whole.merge(part)
    return whole
