"""Base of all meters, pure functions from a block of steps to a mergeable statistic; and folds.

Folds are reductions of one or two facts that several meters share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

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

    The docstring is the reading's definition: unit, clock, and what the number is *not*;
    `docs/reference/readings.md` is generated from it.  One of yours is a class of your own that
    says `name`, `unit` and `observe`; ours are entries of tables.
    """

    name: str
    """Name of the reading: unique, stable, with its unit as a suffix where it has one."""
    unit: str
    """SI unit, `1` for a pure number."""
    title: str = ""
    """Name for people.  With one the reading is in the terminal report's line of numbers."""
    measure: Measure | None = None
    """With what it is shown live; `None`: with every measurement."""
    better: str | None = None
    """`lower`, `higher`, or `None` where neither is better."""
    scope: Scope = Scope.STEADY
    needs: tuple[str, ...] = ()
    """Facts without which the reading is `None`."""

    @property
    def title_for_people(self) -> str:
        """The title, or the name in words."""
        return self.title or self.name.replace("_", " ")

    def observe(self, block: StepBlock) -> Reduction | None:
        """The statistic of this block's steps; `None` when none of them has what it needs."""
        raise NotImplementedError


@dataclass(kw_only=True, eq=False)
class MeterEntry(Meter):
    """A meter that is one statistic of the facts it needs: an entry of its file's table."""

    name: str
    unit: str
    about: str
    """The reading's definition: its docstring."""
    title: str = ""
    measure: Measure | None = None
    better: str | None = None
    scope: Scope = Scope.STEADY
    needs: tuple[str, ...] = ()
    statistic: Callable[..., Reduction | None]
    """Of a block and of these facts: one of those below, or the file's own."""

    def __post_init__(self) -> None:
        self.__doc__ = self.about

    def observe(self, block: StepBlock) -> Reduction | None:
        """The statistic of this block's steps; `None` when none of them has the facts."""
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


def seconds(block: StepBlock, fact: str, percentile: float = 50.0) -> Distribution | None:
    """Distribution of a fact in nanoseconds, in seconds, read at a percentile."""
    rows = block.having(fact)
    return None if rows is None else Distribution.of(rows.values(fact) / 1e9, percentile)


def largest(block: StepBlock, fact: str) -> Maximum | None:
    """Largest value of a fact."""
    rows = block.having(fact)
    return None if rows is None else Maximum(float(rows.values(fact).max()), len(rows))


def latest(block: StepBlock, fact: str) -> Last | None:
    """The last known value of a fact."""
    rows = block.having(fact)
    return (
        None
        if rows is None
        else Last(float(rows.index[-1]), float(rows.values(fact)[-1]), len(rows))
    )


def _sum(rows: StepBlock, fact: str) -> float:
    return rows.total(fact) / (1e9 if fact.endswith("_ns") else 1)
