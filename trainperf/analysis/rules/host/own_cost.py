"""Does trainperf itself cost more than it promises?"""

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.rules.base import LIMITS, at_most, value
from trainperf.analysis.summary.schema import Finding
from trainperf.core.formatting.units import duration, share


def own_cost(evidence: Evidence) -> Finding | None:
    """Our own hooks take more of the step than they may."""
    summary = evidence.summary
    cost_s, step_s = value(summary, "overhead_s"), value(summary, "step_mean_s")
    if cost_s is None or not step_s or summary.run.steady_steps < LIMITS.steps:
        return None
    lost = cost_s / step_s
    if lost < LIMITS.own_cost:
        return None
    return Finding(
        id="own_cost",
        title=f"trainperf itself takes {share(lost)} of the step",
        advice="Attach fewer monitors",
        evidence=(f"{duration(cost_s)} of {duration(step_s)} a step",),
        action="attach only the monitors you need, e.g. StepTimeMonitor() and DataWaitMonitor()",
        fraction=lost,
        gain_upper_bound=at_most(lost),
        severity="low",
        confirm=f"trainperf report: our cost below {share(LIMITS.own_cost)} of the step",
    )
