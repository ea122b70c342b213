"""Finding about a kind of pause and its share of the fit: shared by the rules of `fit`."""

from dataclasses import dataclass
from math import ceil

from trainperf.analysis.rules.base import gap_fraction, setting
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Effort, Finding, costs
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.phases import Gap
from trainperf.core.readings import SAMPLES_PER_S, STEP_MEAN_S


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


def planned_steps(summary: Summary) -> int:
    """Steps of the whole fit as it was configured, as far as that is known; else of what ran."""
    most = setting(summary, "max_steps") or 0
    if most > 0:
        return max(round(most), summary.run.steps)
    epochs, samples = setting(summary, "max_epochs"), setting(summary, "dataset_samples")
    rate, step_s = summary.value(SAMPLES_PER_S), summary.value(STEP_MEAN_S)
    if not epochs or not samples or not rate or not step_s or epochs < 0:
        return summary.run.steps
    return max(round(epochs * samples / (rate * step_s)), summary.run.steps)


def spaced(summary: Summary, gap: Gap) -> tuple[int, int]:
    """Steps from one such pause to the next, and by how many times each has to get shorter.

    Together they make the pauses `AIM` of the fit.  None is farther apart than the fit is long:
    there would be no pause at all.
    """
    number, fewer = summary.gaps.get(gap.label, 0), less_often(summary, gap)
    every, most = summary.run.steps / max(1, number), planned_steps(summary)
    if every * fewer <= most:
        return round(every * fewer), 1
    return most, max(1, round(every * fewer / most))


def _pace(summary: Summary, gap: Gap) -> tuple[str, ...]:
    """How long one pause is, and how many steps lie between two."""
    number, steps = summary.gaps[gap.label], summary.run.steps
    if number < 2 or not steps:
        return ()
    each_s = summary.ledger_s[gap.label] / number
    return (f"{duration(each_s)} each, one in {plural(max(1, round(steps / number)), 'step')}",)
