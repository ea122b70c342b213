"""Rule about trainperf's own overhead."""

from trainperf.analysis.rules.base import Evidence, steady_step_s
from trainperf.core.findings import Finding, amdahl
from trainperf.core.formatting.units import duration, share
from trainperf.core.readings import OVERHEAD_S


PROMISED = 0.03
"""Share of the step that trainperf promises to stay below (design §8)."""


SHORT_S = 5e-3
"""In a shorter step the overhead is a note: what is short in a step is a large share of it."""


def own_cost(evidence: Evidence) -> Finding | None:
    """The overhead of trainperf is more of the step than it promises.

    Of a step below 5 ms it is a note without a gain: nothing to begin with.

    Wrong where: the steps are of few milliseconds: the share is large, the time is not.
    To confirm: `trainperf prove` cannot show it; time the script with and without TrainPerf,
    several times.
    """
    summary = evidence.summary
    cost_s, step_s = summary.value(OVERHEAD_S), steady_step_s(summary)
    if cost_s is None or not step_s:
        return None
    lost = cost_s / step_s
    if lost < PROMISED:
        return None
    return Finding(
        id="own_cost",
        title=f"trainperf's overhead is {share(lost)} of the step",
        advice="Measure less",
        evidence=(f"{duration(cost_s)} of {duration(step_s)} per step",),
        action=summary.run.loop.less,
        fraction=lost if step_s >= SHORT_S else 0.0,
        gain_upper_bound=amdahl(lost) if step_s >= SHORT_S else None,
        severity="low",
        confirm=f"trainperf report: overhead below {share(PROMISED)} of the step",
    )
