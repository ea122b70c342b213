"""Base of all meters: pure functions from a block of steps to a mergeable statistic."""

from enum import Enum
from typing import ClassVar

from trainperf.core.stats.reductions import Reduction
from trainperf.core.steps.block import StepBlock


class Scope(Enum):
    """Which steps a meter is shown."""

    STEADY = "steady"
    """Steps after the warm-up without a disqualifying tag."""
    ALL = "all"
    """Every step of the fit."""


class Measure(Enum):
    """A measurement that can be attached by itself: which readings a narrow callback shows."""

    STEP_TIME = "step time"
    DATA_WAIT = "data wait"
    H2D = "h2d"
    SCALER = "grad scaler"
    TOKENS = "tokens"
    TAIL = "all-reduce tail"
    MEMORY = "memory"
    LOSS = "loss"


class Meter:
    """One measurement.  Has no state, reads no clock, knows no rank and no logger.

    The class docstring is the reading's definition: unit, clock, and what the number is *not*;
    `docs/reference/readings.md` is generated from it.
    """

    name: ClassVar[str]
    """Name of the reading: unique, stable, with its unit as a suffix where it has one."""
    unit: ClassVar[str]
    """SI unit, `1` for a pure number."""
    title: ClassVar[str] = ""
    """Name for people.  With one the reading is in the terminal report's line of numbers."""
    measure: ClassVar[Measure | None] = None
    """With what it is shown live; `None`: with every measurement."""
    better: ClassVar[str | None] = None
    """`lower`, `higher`, or `None` where neither is better."""
    scope: ClassVar[Scope] = Scope.STEADY
    needs: ClassVar[tuple[str, ...]] = ()
    """Facts without which the reading is `None`."""

    @property
    def title_for_people(self) -> str:
        """The title, or the name in words."""
        return self.title or self.name.replace("_", " ")

    def observe(self, block: StepBlock) -> Reduction | None:
        """The statistic of this block's steps; `None` when none of them has the fact."""
        raise NotImplementedError
