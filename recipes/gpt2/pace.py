"""How often can a stage be repeated in the time there is?"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainperf.core.machine.clocks.host import monotonic_ns


class Pace:
    """Counts the time of a walkthrough, on the host clock.

    Args:
        minutes: The most that all runs take.
        least: Pairs of runs below which nothing would be proved.
        most: Pairs that are enough.
        clock: In nanoseconds.
    """

    def __init__(
        self, minutes: float, least: int, most: int, clock: Callable[[], int] = monotonic_ns
    ) -> None:
        self._clock = clock
        self._ends_ns = clock() + round(minutes * 60e9)
        self._least = least
        self._most = most
        self._run_ns: int | None = None

    @contextmanager
    def measured(self, *, runs: int, counts: bool = True) -> Iterator[None]:
        """Around so many runs; the last that count say what the next will take.

        The first runs of a stage do not, if there are others: they are audited, and they compile.
        """
        began_ns = self._clock()
        yield
        if counts or self._run_ns is None:
            self._run_ns = (self._clock() - began_ns) // runs

    def over(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self._ends_ns

    def suffices(self, pairs: int) -> bool:
        """Whether so many pairs of runs can prove anything."""
        return pairs >= self._least

    def turns(self, share: float) -> int:
        """Pairs of runs for the next stage, if it gets this share of the time that is left.

        0 when it is up.  Decided before the stage runs: who stops when the answer pleases finds
        what is not there.
        """
        left_ns = self._ends_ns - self._clock()
        if self._run_ns is None:
            return self._most
        pair_ns = 2 * self._run_ns
        if left_ns < self._least * pair_ns:
            return 0
        return min(self._most, max(self._least, round(left_ns * share / pair_ns)))
