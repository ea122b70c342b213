"""Decision table: the findings of a run by what they return on the work that they take.

The gain is the finding's own; the return is the share of the fit that it saves, over the days of
work that its effort counts as.  The order is that of the findings.

Worked example: the step gets 1.25 times faster by workers, an eighth of a day, and steps are 90 %
of the fit: 20 % of a step, 18 % of the fit, 144 % per day of work.
"""

from collections.abc import Iterable

from trainperf.core.findings import DAYS, Decision, Finding, saving


def decisions(findings: Iterable[Finding], steps_share: float) -> tuple[Decision, ...]:
    """A row for each finding that asks for a change.  Gains of several do not add up.

    Args:
        findings: In their order.
        steps_share: Share of the fit that a change of the step can make shorter.
    """
    asking = (each for each in findings if each.urgent or each.fraction != 0.0)
    return tuple(_row(finding, steps_share) for finding in asking)


def _row(finding: Finding, of_steps: float) -> Decision:
    days, gain, saved = DAYS[finding.effort], finding.gain, None
    if gain is not None:
        saved = saving(gain) * (of_steps if finding.scope == "step" else 1.0)
    return Decision(
        part=finding.id,
        scope=finding.scope,
        fraction=finding.fraction,
        gain=gain,
        ceiling=finding.gain_upper_bound,
        basis="modelled" if finding.measured_gain is None else "measured",
        days=days,
        saved_fraction=saved,
        return_per_day=None if saved is None else saved / days,
        urgent=finding.urgent,
    )
