"""Waits of ranks for each other: at which points of a step, and how long, step by step."""

import numpy as np

from trainperf.core.arrays import Column
from trainperf.core.phases import PHASES, Phase
from trainperf.core.steps.block import StepBlock


COLLECTIVES = "collectives"
"""Their name in a run's configuration."""


def sync_points(
    *, loop_waits: bool, collectives: object = None, tail: bool = True
) -> tuple[Phase, ...]:
    """The phases in which ranks may wait for each other: the points at which they meet.

    Args:
        loop_waits: Whether the framework makes the ranks wait for each other before a fetch.
        collectives: What was counted of them by phase, as it stands in the run's configuration;
            unknown where it is no text.
        tail: Whether the all-reduce tail is measured.
    """
    always = (Phase.BACKWARD,) * tail + (Phase.LOOP,) * loop_waits
    parts = collectives.split(",") if isinstance(collectives, str) else []
    counted = dict(pair for pair in map(str.split, parts) if len(pair) == 2)  # not `none`
    # At least every other step has one.
    more = (
        phase
        for phase in PHASES
        if 2 * float(counted.get(phase.label, 0)) >= 1 and phase not in always
    )
    return (*always, *more)


def wait_ns(point: Phase, block: StepBlock, *, tail: bool) -> Column:
    """Wait at a point per step; NaN where it is not known.

    In backward it is the tail; of a strategy whose tail is not covered it is the whole phase.
    """
    of_tail = tail and point is Phase.BACKWARD
    return block.values("tail_ns") if of_tail else block.host_ns(point)


def own_ns(block: StepBlock) -> list[float]:
    """What a rank spends in each phase: what it waits for in backward is no work of its own."""
    spent = [block.total_ns(phase) for phase in PHASES]
    if block.schema.synchronous:
        spent[Phase.BACKWARD] -= float(np.nansum(block.values("tail_ns")))
    return spent
