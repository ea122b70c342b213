"""Base of all meters, pure functions from a block of steps to a mergeable statistic; and folds.

Folds are reductions of one or two facts that several meters share.
"""

from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from trainperf.core.stats.quantiles import Distribution
from trainperf.core.stats.reductions import Last, Maximum, Rate, Ratio, Reduction, Total
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

    statistic: ClassVar[Callable[..., Reduction | None]]
    """For a meter that is a fold of the facts it `needs`: one of those below."""

    def observe(self, block: StepBlock) -> Reduction | None:
        """The statistic of this block's steps; `None` when none of them has the facts."""
        if not self.needs:
            raise NotImplementedError
        return self.statistic(block, *self.needs)


def mean(block: StepBlock, fact: str) -> Ratio | None:
    """Mean of a fact over the steps that have it; of nanoseconds in seconds."""
    rows = block.having(fact)
    return None if rows is None else Ratio(_sum(rows, fact), float(len(rows)), len(rows))


def total(block: StepBlock, fact: str) -> Total | None:
    """Sum of a fact over the steps that have it; of nanoseconds in seconds."""
    rows = block.having(fact)
    return None if rows is None else Total(_sum(rows, fact), len(rows))


def quotient(block: StepBlock, below: str, above: str) -> Ratio | None:
    """Sum of the second fact over that of the first, of the steps that have both."""
    rows = block.having(below, above)
    return None if rows is None else Ratio(_sum(rows, above), _sum(rows, below), len(rows))


def share_of_wall(block: StepBlock, fact: str) -> Ratio | None:
    """Sum of a fact in nanoseconds over the wall time of the steps that have it."""
    rows = block.having(fact)
    return None if rows is None else Ratio(rows.total(fact), rows.total_wall_ns, len(rows))


def per_second(block: StepBlock, fact: str) -> Rate | None:
    """Sum of a fact over the wall time of the steps that have it."""
    rows = block.having(fact)
    return None if rows is None else Rate(rows.total(fact), rows.total_wall_ns / 1e9, len(rows))


def seconds(block: StepBlock, fact: str) -> Distribution | None:
    """Distribution of a fact in nanoseconds, in seconds."""
    rows = block.having(fact)
    return None if rows is None else Distribution.of(rows.values(fact) / 1e9)


def largest(block: StepBlock, fact: str) -> Maximum | None:
    """Largest value of a fact."""
    rows = block.having(fact)
    return None if rows is None else Maximum(float(rows.values(fact).max()), len(rows))


def latest(block: StepBlock, fact: str) -> Last | None:
    """The last known value of a fact."""
    rows = block.having(fact)
    if rows is None:
        return None
    return Last(float(rows.index[-1]), float(rows.values(fact)[-1]), len(rows))


def _sum(rows: StepBlock, fact: str) -> float:
    return rows.total(fact) / (1e9 if fact.endswith("_ns") else 1)
