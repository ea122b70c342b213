"""Cost of a plain loop's monitor, timed in the loop that it stands in.

In a row its brackets take half as long as between a loop's own work, which fills the caches.
"""

from collections.abc import Callable
from typing import Protocol

from trainperf.core.machine.clocks import monotonic_ns
from trainperf.recording.bracket_cost import BracketCost
from trainperf.recording.monitor import Monitor


class EndsSteps(Protocol):
    """A monitor of a loop that is told when a step is complete."""

    def end_step(self, loss: object = None) -> None:
        """It is."""


class TimedSteps(BracketCost):
    """Times what runs in every step, until it has seen enough of them.

    Args:
        monitor: Whose cost of a switch is then known.
        loop: Whose `end_step` is timed as long.
        settled: Called once, when nothing is to be timed any more.
    """

    def __init__(self, monitor: Monitor, loop: "EndsSteps", settled: Callable[[], None]) -> None:
        super().__init__(monotonic_ns)
        self._monitor = monitor
        self._loop = vars(loop)
        self._end_step = loop.end_step
        self._settled = settled
        self._loop["end_step"] = self._timed_end

    @classmethod
    def of(
        cls, monitor: Monitor, loop: "EndsSteps", settled: Callable[[], None]
    ) -> "TimedSteps | None":
        """`None` where another clock than the machine's is read, as tests do."""
        return cls(monitor, loop, settled) if monitor.recorder.now_ns is monotonic_ns else None

    def _timed_end(self, loss: object = None) -> None:
        """End a step; what the monitor counts by itself is not counted twice."""
        recorder = self._monitor.recorder
        draft, place = recorder.draft, recorder.column("overhead_ns")
        counted_ns = 0 if draft is None else draft.facts[place] or 0
        begun = self.clock()
        self._end_step(loss)
        self.spent_ns += self.clock() - begun
        if draft is None:
            return
        self.spent_ns -= round((draft.facts[place] or 0) - counted_ns)
        switch_ns = self.step_ended(draft)
        if switch_ns is not None:
            self._monitor.switch_ns = switch_ns
            self._loop.pop("end_step", None)
            self._settled()
