"""Schedules by steps and time, both given by the caller; and waits that have an end."""

import math
import time
from collections.abc import Callable

from trainperf.core.machine.clocks import HostClock, monotonic_ns


def comes_true(
    condition: Callable[[], object],
    patience_ns: int,
    poll_s: float = 0.02,
    clock: HostClock = monotonic_ns,
) -> bool:
    """Whether it does in time: asked every *poll_s*, for a wait in the system may have no end."""
    deadline_ns = clock() + patience_ns
    sleep = getattr(clock, "sleep", time.sleep)  # that of tests lets its own time pass
    while not condition():
        if clock() >= deadline_ns:
            return False
        sleep(poll_s)
    return True


class CostLimit:
    """When something may be done again, so that it takes no more than a *share* of the time.

    For whatever is sampled, on any thread: what it took is told to `done`, and the next time is
    1 / *share* times that long after it.  Allowed at once at first.  Times are the caller's, in
    nanoseconds of one clock; the cost may be of another, e.g. the thread's processor time.

    Args:
        share: Of the time; 0.1 % by default, what everything sampled keeps to.
        least_ns: Never more often than this, however cheap.
        interrupted: A cost so many times the least so far counts as that many times: whatever
            interrupted it says nothing about the next.
    """

    def __init__(
        self, share: float = 1e-3, least_ns: int = 0, interrupted: float = math.inf
    ) -> None:
        self._times = 1 / share
        self._least_ns = least_ns
        self._interrupted = interrupted
        self._least_cost_ns = math.inf
        self.next_ns = 0
        """From when on it may be done again."""

    def due(self, now_ns: int) -> bool:
        """Whether it may be done now; what is done then costs nothing to speak of."""
        if now_ns < self.next_ns:
            return False
        self.next_ns = now_ns + self._least_ns
        return True

    def done(self, now_ns: int, cost_ns: int) -> None:
        """It was done, ended *now_ns* and took *cost_ns*."""
        self._least_cost_ns = min(self._least_cost_ns, cost_ns or math.inf)
        counted_ns = min(cost_ns, self._interrupted * self._least_cost_ns)
        self.next_ns = now_ns + max(self._least_ns, round(self._times * counted_ns))


class FlushSchedule:
    """Due every *every* steps or five seconds, but never so often that it costs 0.5 %.

    The cost of a flush is told to `done`; the next one is due no sooner than 200 times that long
    after, unless *cap* steps have gathered: of steps below some two milliseconds more than *usual*
    do, for half of what a flush takes is the same for any number.
    """

    usual = 50
    """Steps for which there is a flush at the latest, where it costs no more than that."""
    cap = 500
    """Steps after which one is due whatever it costs: memory is bounded."""
    most_ns = 5_000_000_000
    """Time after which a single step is enough."""

    def __init__(self, every: int) -> None:
        self._every = max(1, min(every, self.usual))
        self._late_ns = self.most_ns
        self._limit = CostLimit(1 / 200)

    def due(self, steps: int, now_ns: int) -> bool:
        """Whether to flush, with *steps* waiting.  Runs every step."""
        wanted = steps >= self._every or (steps > 0 and now_ns >= self._late_ns)
        return steps >= self.cap or (wanted and now_ns >= self._limit.next_ns)

    def done(self, now_ns: int, cost_ns: int) -> None:
        """A flush ended *now_ns* and took *cost_ns*."""
        self._limit.done(now_ns, cost_ns)
        self._late_ns = now_ns + self.most_ns
