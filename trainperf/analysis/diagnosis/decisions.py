"""Decision table: the findings of a run by what they return on the work that they take.

The gain is the finding's own; the return is the share of the fit that it saves, over the days of
work that its effort counts as.  The order is that of the findings.

Worked example: the step gets 1.25 times faster by workers, an eighth of a day, and steps are 90 %
of the fit: 20 % of a step, 18 % of the fit, 144 % per day of work.
"""

from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import DAYS, Decision, Finding, saving
from trainperf.core.phases import PHASES, Gap
from trainperf.core.readings import STEP_MEAN_S


def decisions(summary: Summary) -> tuple[Decision, ...]:
    """A row for each finding that asks for a change.  Gains of several do not add up.

    Args:
        summary: With its findings.
    """
    fit_s = summary.run.fit_s - summary.ledger_s.get(Gap.OTHERS_TURN.label, 0.0)
    steps_s = sum(summary.ledger_s.get(phase.label, 0.0) for phase in PHASES)
    # As findings are ranked: longer steps are so for a reason that a change of a step leaves.
    steps_s = min(steps_s, summary.run.steps * (summary.value(STEP_MEAN_S) or 0.0))
    asking = (each for each in summary.findings if each.urgent or each.fraction != 0.0)
    return tuple(_row(finding, steps_s / fit_s if fit_s else 0.0) for finding in asking)


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
