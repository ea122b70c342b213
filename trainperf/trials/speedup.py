"""Speed-up of a change that is switched on and off in one process, from blocks that take turns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.core.artifacts.trials import NEARLY_NOTHING
from trainperf.core.stats.bootstrap import Estimate, RatioInterval
from trainperf.core.stats.sequential import Looks, sequential_interval
from trainperf.core.stats.verdict import verdict_of


PLAN = Looks(most=128, every=8, instance=0.005, assumed=0)
"""Pairs of neighbouring blocks, whose spread is not that of processes.  Half a percent no number of
them removes: where memory happens to lie in this one process."""

LOOKS = range(PLAN.every, PLAN.most + 1, PLAN.every)
"""Pairs after which the interval is looked at."""

PRECISE = 0.04
"""Half the width of an interval, as a logarithm, that is good enough once the verdict is known."""


@dataclass(frozen=True, slots=True)
class Block:
    """Steps in a row with a change, or without it."""

    step_ns: float
    """Host time of one of them, waits for data included; of several ranks, of the slowest."""
    peak_bytes: int | None = None
    """Most that the device's allocator had handed out meanwhile; `None` on a CPU."""


def switched_speedup(off: Sequence[Block], on: Sequence[Block]) -> RatioInterval:
    """Speed-up from blocks in pairs of neighbours.

    Args:
        off: Without the change, two at least.
        on: With it, each next to the one at its place in *off*.
    """
    without, with_it = (
        [Estimate(log=math.log(block.step_ns), sampling=0.0, drift=0.0) for block in blocks]
        for blocks in (off, on)
    )
    return sequential_interval(with_it, without, PLAN)


def is_decided(speedup: RatioInterval) -> bool:
    """Whether more pairs would change nothing that matters.

    Either hardly anything can be gained, be it slower or undecided; or it is faster, and the number
    is good enough.
    """
    if speedup.high <= NEARLY_NOTHING:
        return True
    precise = math.log(speedup.high / speedup.low) <= 2 * PRECISE
    return precise and verdict_of(speedup.low, speedup.high) == "faster"
