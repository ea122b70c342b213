"""Waits of ranks for each other: at which points of a step, and how long, step by step."""

import numpy as np

from trainperf.core.arrays import Column
from trainperf.core.phases import PHASES, Phase
from trainperf.core.steps.block import StepBlock


COLLECTIVES = "collectives"
"""Their name in a run's configuration."""


NO_TAIL = "backward without a tail"
"""The point in backward of a strategy whose tail is not covered: the wait is the whole phase."""


def sync_points(
    *, loop_waits: bool, collectives: object = None, tail: bool = True
) -> tuple[str, ...]:
    """The points at which ranks may wait for each other.

    Args:
        loop_waits: Whether the framework makes the ranks wait for each other before a fetch.
        collectives: What was counted of them by phase, as it stands in the run's configuration;
            unknown where it is no text.
        tail: Whether the all-reduce tail is measured.
    """
    always = ("backward",) * tail + ("loop",) * loop_waits
    parts = collectives.split(",") if isinstance(collectives, str) else []
    counted = dict(pair for pair in map(str.split, parts) if len(pair) == 2)  # not `none`
    # At least every other step has one.
    more = (
        NO_TAIL if phase is Phase.BACKWARD else phase.label
        for phase in PHASES
        if 2 * float(counted.get(phase.label, 0)) >= 1 and phase.label not in always
    )
    return (*always, *more)


def phase_of(point: str) -> Phase:
    """The phase in which the ranks wait at a point."""
    return Phase.BACKWARD if point == NO_TAIL else Phase[point.upper()]


def wait_ns(point: str, block: StepBlock) -> Column:
    """Wait at a point per step; NaN where it is not known."""
    return block.values("tail_ns") if point == "backward" else block.host_ns(phase_of(point))


def own_ns(block: StepBlock) -> list[float]:
    """What a rank spends in each phase: what it waits for in backward is no work of its own."""
    spent = [block.total_ns(phase) for phase in PHASES]
    if block.schema.synchronous:
        spent[Phase.BACKWARD] -= float(np.nansum(block.values("tail_ns")))
    return spent
