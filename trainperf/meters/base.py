"""What is a meter?  A pure function from a block of steps to a mergeable statistic."""

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


class Meter:
    """One measurement.  Has no state, reads no clock, knows no rank and no logger.

    The class docstring is the reading's definition: unit, clock, and what the number is *not*;
    `docs/reference/readings.md` is generated from it.
    """

    name: ClassVar[str]
    """Name of the reading: unique, stable, with its unit as a suffix where it has one."""
    unit: ClassVar[str]
    """SI unit, `1` for a pure number."""
    better: ClassVar[str | None] = None
    """`lower`, `higher`, or `None` where neither is better."""
    scope: ClassVar[Scope] = Scope.STEADY
    needs: ClassVar[tuple[str, ...]] = ()
    """Facts without which the reading is `None`."""

    def observe(self, block: StepBlock) -> Reduction | None:
        """The statistic of this block's steps; `None` when none of them has the fact."""
        raise NotImplementedError
