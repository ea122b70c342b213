"""What is a finding worth?  Its predicted gain, and that over the effort it takes."""

from collections.abc import Sequence

from trainperf.core.findings import Effort, Finding
from trainperf.core.formatting.units import share, times


HOURS: dict[Effort, float] = {"minutes": 1.0, "hours": 6.0, "days": 24.0}
"""What an effort counts as, with the run that proves it: round figures, to put them in an order."""


def to_act_on(findings: Sequence[Finding]) -> list[Finding]:
    """Those that ask for a change: a finding of no gain says what to leave alone."""
    return [finding for finding in findings if finding.urgent or finding.fraction != 0.0]


def return_per_hour(finding: Finding) -> float | None:
    """Share of its scope's time that an hour of work saves at most; `None` without a bound."""
    return None if finding.fraction is None else finding.fraction / HOURS[finding.effort]


def gain(finding: Finding) -> str:
    """The most a finding can gain, e.g. `at most 1.58 × faster`; empty where it is not known."""
    if finding.gain_upper_bound is None or not finding.fraction:
        return ""
    whole = "the fit " if finding.scope == "fit" else ""
    return f"{whole}at most {times(finding.gain_upper_bound)} faster"


def effort(finding: Finding) -> str:
    """E.g. `minutes of work: saves up to 37 % of the step an hour`."""
    worth = return_per_hour(finding)
    if not worth:
        return f"{finding.effort} of work"
    return f"{finding.effort} of work: saves up to {share(worth)} of the {finding.scope} an hour"
