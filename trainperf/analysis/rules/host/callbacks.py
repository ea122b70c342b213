"""Rule about callbacks and hooks that take much of the step."""

from trainperf.analysis.rules.base import Evidence, leaves_cold_caches, phase_fraction
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, share
from trainperf.core.phases import Phase
from trainperf.core.readings import OVERHEAD_S, STEP_MEAN_S


SAMPLED = Phase.CALLBACKS


@leaves_cold_caches
def callbacks(evidence: Evidence) -> Finding | None:
    """User hooks are a notable part of the step; the most expensive one is named.

    What trainperf costs, which is mostly in its own hooks, is not theirs.
    """
    summary = evidence.summary
    lost, step_s = phase_fraction(summary, Phase.CALLBACKS), summary.value(STEP_MEAN_S)
    if lost is None or not step_s:
        return None
    lost -= (summary.value(OVERHEAD_S) or 0.0) / step_s
    if lost < LIMITS.notable:
        return None
    named = list(summary.actions_s.items())[:2]
    heaviest = named[0][0] if named else "the callbacks"
    return Finding(
        id="callbacks",
        title=f"callbacks take {share(lost)} of the step",
        advice=f"Lighten {heaviest}",
        evidence=tuple(f"{hook}: {duration(spent_s)} per step" for hook, spent_s in named)
        or ("no hook was timed by name",),
        action=f"do the work of {heaviest} every n-th step, or not at all",
        **costs(lost),
        effort="hours",
        confirm="trainperf compare BEFORE AFTER: phase_callbacks_s falls",
    )
