"""Time budget of a walkthrough: how many pairs of runs each stage gets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainperf.core.machine.clocks import monotonic_ns


class TimeBudget:
    """Shares out the time of a walkthrough, on the host clock.

    Args:
        minutes: For all runs together.
        least: The fewest pairs of runs that can prove a change.
        most: Pairs after which a stage stops.
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
        """Time *runs* runs: the latest timing predicts the next.

        The first runs of a stage do not count (*counts*) where there are others: they are
        profiled, and they compile.
        """
        began_ns = self._clock()
        yield
        if counts or self._run_ns is None:
            self._run_ns = (self._clock() - began_ns) // runs

    @property
    def most(self) -> int:
        """Pairs after which a stage stops."""
        return self._most

    def allow(self, pairs: int) -> None:
        """Set after how many pairs a stage stops, for all that follow."""
        self._most = pairs

    def over(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self._ends_ns

    def suffices(self, pairs: int) -> bool:
        """Whether this many pairs of runs can prove a change."""
        return pairs >= self._least

    def turns(self, share: float) -> int:
        """Pairs of runs for the next stage, given its *share* of the time left; 0 when time is up.

        Decided before the stage runs: stopping as soon as the result looks good would bias it.
        """
        left_ns = self._ends_ns - self._clock()
        if self._run_ns is None:
            return self._most
        pair_ns = 2 * self._run_ns
        # One pair may decide.
        if left_ns < pair_ns:
            return 0
        return min(self._most, max(self._least, round(left_ns * share / pair_ns)))
