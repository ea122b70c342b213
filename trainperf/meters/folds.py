"""Reductions of one or two facts that several meters share."""

from trainperf.core.stats.reductions import Last, Maximum, Rate, Ratio, Total
from trainperf.core.steps.block import StepBlock


def mean(block: StepBlock, fact: str) -> Ratio | None:
    """Mean of a fact over the steps that have it."""
    rows = block.having(fact)
    return None if rows is None else Ratio(rows.total(fact), float(len(rows)), len(rows))


def total(block: StepBlock, fact: str) -> Total | None:
    """Sum of a fact over the steps that have it."""
    rows = block.having(fact)
    return None if rows is None else Total(rows.total(fact), len(rows))


def share_of_wall(block: StepBlock, fact: str) -> Ratio | None:
    """Sum of a fact in nanoseconds over the wall time of the steps that have it."""
    rows = block.having(fact)
    return None if rows is None else Ratio(rows.total(fact), rows.total_wall_ns, len(rows))


def per_second(block: StepBlock, fact: str) -> Rate | None:
    """Sum of a fact over the wall time of the steps that have it."""
    rows = block.having(fact)
    return None if rows is None else Rate(rows.total(fact), rows.total_wall_ns / 1e9, len(rows))


def largest(block: StepBlock, fact: str) -> Maximum | None:
    """Largest value of a fact."""
    rows = block.having(fact)
    values = rows.fact(fact) if rows else None
    return None if values is None else Maximum(float(values.max()), len(values))


def latest(block: StepBlock, fact: str) -> Last | None:
    """The last known value of a fact."""
    rows = block.having(fact)
    values = rows.fact(fact) if rows else None
    if rows is None or values is None:
        return None
    return Last(float(rows.index[-1]), float(values[-1]), len(values))
