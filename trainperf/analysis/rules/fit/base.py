"""Finding about a kind of pause and its share of the fit: shared by the rules of `fit`."""

from dataclasses import dataclass
from math import ceil

from trainperf.analysis.rules.base import gap_fraction
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Effort, Finding, costs
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.phases import Gap


AIM = 0.05
"""Of the fit: so much a pause may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRemedy:
    """What to do about one kind of pause."""

    advice: str
    action: str
    effort: Effort = "minutes"


def gap_finding(summary: Summary, gap: Gap, limit: float, remedy: PauseRemedy) -> Finding | None:
    """A finding when gaps of one kind take at least *limit* of the fit."""
    lost, number = gap_fraction(summary, gap.label), summary.gaps.get(gap.label, 0)
    if lost < limit or not number:
        return None
    spent_s = summary.ledger_s[gap.label]
    return Finding(
        id=gap.label,
        title=f"{gap.label} takes {share(lost)} of the fit",
        advice=remedy.advice,
        evidence=(f"{duration(spent_s)} in {plural(number, 'pause')}", *_pace(summary, gap)),
        action=remedy.action,
        **costs(lost, scope="fit"),
        effort=remedy.effort,
        confirm=f"trainperf report: {gap.label} takes at most {share(AIM)} of the fit",
    )


def less_often(summary: Summary, gap: Gap) -> int:
    """By how many times fewer such pauses make them `AIM` of the fit; at least 2."""
    lost = min(gap_fraction(summary, gap.label), 0.999)
    exactly = lost * (1 - AIM) / ((1 - lost) * AIM)
    return max(2, ceil(exactly - 1e-6))  # rounding must not make a whole number the next one


def _pace(summary: Summary, gap: Gap) -> tuple[str, ...]:
    """How long one pause is, and how many steps lie between two."""
    number, steps = summary.gaps[gap.label], summary.run.steps
    if number < 2 or not steps:
        return ()
    each_s = summary.ledger_s[gap.label] / number
    return (f"{duration(each_s)} each, one in {plural(max(1, round(steps / number)), 'step')}",)
