"""Reductions of one or two facts that several meters share."""

from trainperf.core.stats.reductions import Last, Maximum, Rate, Ratio, Total
from trainperf.core.steps.block import StepBlock


def mean(block: StepBlock, fact: str) -> Ratio | None:
    """Mean of a fact over the steps that have it."""
    known = block.having(fact)
    return None if known is None else Ratio(known.total(fact), float(len(known)), len(known))


def total(block: StepBlock, fact: str) -> Total | None:
    """Sum of a fact over the steps that have it."""
    known = block.having(fact)
    return None if known is None else Total(known.total(fact), len(known))


def share_of_wall(block: StepBlock, fact: str) -> Ratio | None:
    """Sum of a fact in nanoseconds over the wall time of the steps that have it."""
    known = block.having(fact)
    return None if known is None else Ratio(known.total(fact), known.total_wall_ns, len(known))


def per_second(block: StepBlock, fact: str) -> Rate | None:
    """Sum of a fact over the wall time of the steps that have it."""
    known = block.having(fact)
    return None if known is None else Rate(known.total(fact), known.total_wall_ns / 1e9, len(known))


def largest(block: StepBlock, fact: str) -> Maximum | None:
    """Largest value of a fact."""
    known = block.having(fact)
    values = known.fact(fact) if known else None
    return None if values is None else Maximum(float(values.max()), len(values))


def latest(block: StepBlock, fact: str) -> Last | None:
    """The last known value of a fact."""
    known = block.having(fact)
    values = known.fact(fact) if known else None
    if known is None or values is None:
        return None
    return Last(float(known.index[-1]), float(values[-1]), len(values))
