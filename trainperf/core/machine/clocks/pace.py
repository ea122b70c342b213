"""How fast is the host right now?  The same small piece of work, timed at either end of a fit."""

from itertools import pairwise
from statistics import median

from trainperf.core.machine.clocks.base import HostClock


ROUNDS = 2500
"""Of the work; some 0.2 ms on a machine of 2020."""

TIMES = 9
"""That it is done and timed: some 2 ms, and twice that on a machine that is slow."""


def pace_ns(clock: HostClock) -> int | None:
    """What the work takes, the median of several times; `None` on a clock that stands still.

    It is Python alone: on a host that lends its processors out, arithmetic in Python gets slower
    by at least as much as a step does, and needs no thread, no memory and no framework.
    """
    _work()  # Python makes its bytecode faster while it runs it for the first time
    moments = [clock()]
    for _ in range(TIMES):
        _work()
        moments.append(clock())
    return round(median(end - begin for begin, end in pairwise(moments))) or None


def _work() -> int:
    found = 1
    for place in range(ROUNDS):
        found = (found * 31 + place) & 0xFFFF
    return found
