"""Other processes that keep processors busy while trainings run: what makes a proof take long."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from statistics import median

import psutil

from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.core.machine.limits import busy_s


EVERY_S = 3.0
"""Between two looks, each of which takes some milliseconds."""


class Others:
    """How many CPUs are kept busy by processes that are neither this one nor started by it.

    Args:
        spent_s: Processor time of those so far, seconds; `None` where the system does not tell.
        clock: Monotonic, nanoseconds.
    """

    def __init__(
        self, spent_s: Callable[[], float | None] | None = None, clock: HostClock = monotonic_ns
    ) -> None:
        self._spent_s = spent_s or spent_by_others_s
        self._clock = clock
        self._looks: list[tuple[int, float]] = []
        """When, and what they had spent by then."""

    def look(self) -> None:
        """Look, if it is time for it."""
        now_ns = self._clock()
        if self._looks and now_ns - self._looks[-1][0] < EVERY_S * 1e9:
            return
        spent_s = self._spent_s()
        if spent_s is not None:
            self._looks.append((now_ns, spent_s))

    @property
    def cpus(self) -> list[float]:
        """Of each stretch between two looks."""
        return [
            max(0.0, 1e9 * (spent_s - before_s) / (now_ns - then_ns))
            for (then_ns, before_s), (now_ns, spent_s) in pairwise(self._looks)
        ]


def spent_by_others_s() -> float | None:
    """Processor time of processes that are neither this one nor its descendants, so far."""
    try:
        itself = psutil.Process()
        own_s = sum(map(_spent_s, [itself, *itself.children(recursive=True)]))
        return busy_s()[0] - own_s
    except (psutil.Error, OSError, NotImplementedError):
        return None


def _spent_s(process: psutil.Process) -> float:
    """With what it waited for; that of one that has ended is now its parent's."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0


def typical(cpus: Iterable[float]) -> float | None:
    """Of several stretches the median: a process of ours that nobody waited for counts once."""
    stretches = list(cpus)
    return median(stretches) if stretches else None
