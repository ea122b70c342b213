"""Search for the first slow commit between a fast one and a slow one, and what it leaves.

As `git bisect` does, the search halves what is left, and goes around commits that cannot be judged.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from trainperf.comparison.results import Clock, Comparison, Speedup
from trainperf.core.stats.verdict import SpeedVerdict


BISECTION_VERSION = 1

Pace = Literal["fast", "slow", "cannot tell", "broken"]
"""Of a state: as the good one, as the bad one, neither is shown, or it does not run."""

BisectionEnd = Literal["found", "several", "not slower", "cannot tell"]
"""Whether the first slow state is known, or some that may be it; or the bad state is shown not to
be slower than the good one, or neither is shown."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured."""

    id: str
    """A commit's hash."""
    title: str
    """The commit's subject."""


class BisectionStep(msgspec.Struct, frozen=True, kw_only=True):
    """One state, measured in turns with the good one."""

    state: State
    pace: Pace
    speedup: Speedup | None = None
    """Against the good state, by the clock that decides; below 1 it is slower."""
    pairs: int = 0
    """Of processes that it took."""
    reason: str = ""
    """Why it cannot be told, or does not run."""


class Bisection(msgspec.Struct, frozen=True, kw_only=True):
    """All that a bisection came to."""

    schema: int = BISECTION_VERSION
    kind: Literal["commits"] = "commits"
    end: BisectionEnd
    good: State
    bad: State
    command: tuple[str, ...]
    clock: Clock | None = None
    """The one that the change from good to bad moved: every state is judged by it."""
    limit: float | None = None
    """How much slower than the good state, relatively, counts as slow."""
    steps: tuple[BisectionStep, ...] = ()
    """In the order in which they were measured; the bad state is the first."""
    first_slow: State | None = None
    before: State | None = None
    """The state before the first slow one."""
    change: Speedup | None = None
    """Of the first slow state against that before it."""
    verdict: SpeedVerdict | None = None
    """Of that change."""
    candidates: tuple[State, ...] = ()
    """Those of which one is the first slow state, where it is not known which."""
    note: str = ""
    """Why it went no further, in a sentence."""
    warnings: tuple[str, ...] = ()
    """What to know about the measurements."""


class History(Protocol):
    """States between a good one and a bad one, and their order."""

    def left(self, fast: Collection[str], slow: str) -> list[State]:
        """Those that may be the first slow one, without *slow* itself; the most telling first."""
        ...


@dataclass(slots=True)
class Search:
    """The search so far."""

    history: History
    slow: State
    """The earliest state that is known to be slow."""
    fast: set[str]
    """States that are known to be fast."""
    skipped: set[str] = field(default_factory=set)

    def next(self) -> State | None:
        """The state to be measured now; `None` at the end."""
        return next((state for state in self.left() if state.id not in self.skipped), None)

    def left(self) -> list[State]:
        """What may still be the first slow state, next to `slow`."""
        return self.history.left(self.fast, self.slow.id)

    def learn(self, state: State, pace: Pace) -> None:
        """What was measured of a state."""
        if pace == "slow":
            self.slow = state
        elif pace == "fast":
            self.fast.add(state.id)
        else:
            self.skipped.add(state.id)


def searched(search: Search, measured: Callable[[State], BisectionStep]) -> list[BisectionStep]:
    """Measure states until the first slow one is known, or no state is left that can be judged."""
    steps = []
    while (state := search.next()) is not None:
        step = measured(state)
        steps.append(step)
        search.learn(state, step.pace)
    return steps


def half_of(slowdown: Speedup) -> float:
    """The limit half way between as fast as before and *slowdown*, as a relative slowdown."""
    return math.sqrt(1 / slowdown.value) - 1


def by_clock(comparison: Comparison, clock: Clock | None) -> Speedup | None:
    """The speed-up by a clock; by that which decides where the runs do not have it."""
    changes = {change.clock: change.speedup for change in comparison.clocks}
    return changes.get(clock, comparison.speedup) if clock else comparison.speedup


def pace_of(comparison: Comparison, clock: Clock | None, limit: float) -> Pace:
    """Whether the second run is slow: beyond the limit by its whole interval, or within it."""
    change = by_clock(comparison, clock)
    if change is None:
        return "broken"
    if change.high * (1 + limit) < 1:
        return "slow"
    return "fast" if change.low * (1 + limit) > 1 else "cannot tell"
