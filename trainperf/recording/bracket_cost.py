"""Cost of brackets, timed in the loop that they stand in.

A bracket in a running loop, whose work fills the caches in between, takes several times what it
takes in a row.  So in the first steps of a fit each one is timed in its place.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median
from typing import TypeVar

from typing_extensions import ParamSpec

from trainperf.core.machine.clocks import HostClock
from trainperf.recording.recorder import Draft
from trainperf.recording.timeline import DirectBracket


P = ParamSpec("P")
R = TypeVar("R")

STEPS = 40
"""Steps in which brackets are timed."""
COUNTED = 20
"""The last of them: the interpreter has to come to know the code first."""


class BracketCost:
    """Times brackets until it has seen `STEPS` steps."""

    def __init__(self, clock: HostClock) -> None:
        self.clock = clock
        self.spent_ns = 0
        """What they took since the last step ended."""
        self._before: Draft | None = None
        self._steps: list[tuple[int, int]] = []

    def step_over(self, draft: Draft, *, traced: bool = False) -> float | None:
        """Nanoseconds of a switch as the recorder counts them, once enough steps were timed.

        Args:
            draft: The step, which is complete.
            traced: Whether a trace is being recorded.
        """
        del traced
        before, self._before = self._before, draft
        spent_ns, self.spent_ns = self.spent_ns, 0
        if before is None:
            return None
        self._steps.append((spent_ns, before.switches))
        if len(self._steps) < STEPS:
            return None
        usual = self._steps[-COUNTED:]
        return median(spent for spent, _ in usual) / max(1, median(number for _, number in usual))

    def without(self, begun_ns: int) -> None:
        """What has passed since then is counted elsewhere, or is nobody's."""
        self.spent_ns -= self.clock() - begun_ns

    def bracket(self, inner: AbstractContextManager[None]) -> AbstractContextManager[None]:
        """The context manager, timed."""
        leave: Callable[..., object] = inner.__exit__
        return DirectBracket(self.timed(inner.__enter__), self.timed(leave))

    def timed(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, whose time is counted."""
        clock = self.clock

        def call(*given: P.args, **named: P.kwargs) -> R:
            begun = clock()
            try:
                return function(*given, **named)
            finally:
                self.spent_ns += clock() - begun

        return call
