"""What the rules about gaps have in common: a kind of pause and its share of the fit."""

from trainperf.phases import Gap
from trainperf.results import Finding, Summary
from trainperf.rules.base import at_most, gap_fraction, severity
from trainperf.units import duration, plural, share


def gap_finding(
    summary: Summary, gap: Gap, limit: float, *, advice: str, action: str
) -> Finding | None:
    """A finding when gaps of one kind take at least *limit* of the fit."""
    lost, number = gap_fraction(summary, gap.label), summary.gaps.get(gap.label, 0)
    if lost < limit or not number:
        return None
    return Finding(
        id=gap.label,
        title=f"{gap.label} takes {share(lost)} of the fit",
        advice=advice,
        evidence=(f"{duration(summary.ledger_s[gap.label])} in {plural(number, 'pause')}",),
        action=action,
        fraction=lost,
        scope="fit",
        gain_upper_bound=at_most(lost),
        severity=severity(lost),
    )
