"""Verdicts on claims, from the interval of a ratio measured in turns."""

from typing import Literal, TypedDict

from recipes.cases.case import CaseVerdict, MeasuredRow
from trainperf.core.formatting.units import times
from trainperf.core.stats.verdict import verdict_of


Expectation = Literal["faster", "slower", "equal"]
"""What a claim says of the changed version; of bytes, *faster* is fewer."""

EQUAL = 0.05
"""Relative difference, either way, within which all of an interval shows *no difference*."""


class Judgement(TypedDict):
    """The fields of a `Case` that follow from its deciding row."""

    verdict: CaseVerdict
    reason: str
    decided_by: str


def verdict(row: MeasuredRow, expected: Expectation, why: str = "") -> Judgement:
    """`Case(**verdict(row, "faster"), …)`.

    Args:
        row: The changed version, with the interval of its ratio.
        expected: What the claim says of it.
        why: Where the claim does not hold, the reason; said only then.
    """
    outcome = decide(row, expected)
    reason = interval(row)
    if row.differs:
        reason = f"its result differs: {row.differs}"
    elif outcome in ("does not hold here", "no difference") and why:
        reason = f"{reason}; {why}"
    return Judgement(verdict=outcome, reason=reason, decided_by=row.what)


def needs_cuda(why: str) -> Judgement:
    """`Case(**needs_cuda("the CPU has no streams"), …)`: nothing was measured, and why."""
    return Judgement(verdict="needs CUDA", reason=why, decided_by="")


def decide(row: MeasuredRow, expected: Expectation) -> CaseVerdict:
    """Whether the interval of a row's ratio is what a claim *expected*.

    *Cannot tell* where the interval allows both, where there is none, and where the results of the
    two differ: the time of something else is no answer.
    """
    if row.low is None or row.high is None or row.differs:
        return "cannot tell"
    speed = verdict_of(row.low, row.high, margin=EQUAL)
    if speed == "undecided":
        return "cannot tell"
    if speed == expected:
        return "holds"
    return "no difference" if speed == "equal" else "does not hold here"


def factor_of(ratio: float) -> str:
    """A ratio with as many digits as its interval has: a whole number could lie outside of it."""
    return times(ratio) if ratio < 9.995 else f"{ratio:.3g}×"


def decided(outcome: CaseVerdict) -> bool:
    """Whether a claim was decided: the interval is away from 1, or within 5 % of it."""
    return outcome in ("holds", "does not hold here", "no difference")


def interval(row: MeasuredRow) -> str:
    """A row's ratio with its interval, in words."""
    if row.ratio is None:
        return f"{row.what}: not compared"
    factor = factor_of(row.ratio)
    if row.unit == "B":
        words = f"{row.against} takes {factor} the bytes of {row.what}"
    elif row.unit == "s":
        words = f"{row.what}: {factor} as fast as {row.against}"
    else:
        words = f"{row.against} is {factor} {row.what}"
    if row.low is None or row.high is None:
        return f"{words}; too few rounds for an interval"
    return (
        f"{words} (exact)"
        if row.low == row.high
        else f"{words} (95 % CI {row.low:.3g}–{row.high:.3g})"
    )
