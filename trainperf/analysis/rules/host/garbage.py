"""Does the Python garbage collector take a notable part of the fit?"""

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.rules.base import LIMITS, at_most, own_fit_s, severity, worst
from trainperf.analysis.summary.schema import Finding
from trainperf.core.formatting.units import duration, share


def garbage(evidence: Evidence) -> Finding | None:
    """Steps stand still for the garbage collector."""
    summary = evidence.summary
    paused_s = worst(summary, "gc_s")
    if paused_s is None or not own_fit_s(summary):
        return None
    lost, unusual = paused_s / own_fit_s(summary), summary.excluded.get("gc", 0)
    # A few full collections while a process warms up are a notable part of a short fit only.
    if lost < LIMITS.garbage or 0 < unusual < LIMITS.collections:
        return None
    return Finding(
        id="garbage",
        title=f"the garbage collector takes {share(lost)} of the fit",
        advice="Tame the garbage collector",
        evidence=(f"{duration(paused_s)} of pauses inside steps",),
        action="gc.freeze() after set-up, and gc.collect() only between epochs",
        fraction=lost,
        scope="fit",
        gain_upper_bound=at_most(lost),
        severity=severity(lost),
        confirm="trainperf compare before after: gc_s falls",
    )
