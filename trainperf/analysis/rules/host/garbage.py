"""Rule about Python's garbage collector."""

from trainperf.analysis.rules.base import Evidence, leaves_cold_caches, own_fit_s, worst
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import duration, share
from trainperf.core.readings import GC_S


@leaves_cold_caches
def garbage(evidence: Evidence) -> Finding | None:
    """Steps stand still for the garbage collector.

    `gc.callbacks` times each collection inside a step. A finding from 2 % of the fit on, unless
    those steps are so few that they are of the process's start. The bound is all of the pauses.

    Wrong where: the pauses are of the warm-up, and the fit is short.
    To confirm: the reading `gc_s` of a longer run; `gc.freeze()` after set-up.
    """
    summary = evidence.summary
    paused_s = worst(summary, GC_S)
    if paused_s is None or not own_fit_s(summary):
        return None
    lost, unusual = paused_s / own_fit_s(summary), summary.excluded.get("gc", 0)
    # A few full collections while a process warms up are a notable part of a short fit only.
    if lost < 0.02 or 0 < unusual < 5:
        return None
    return Finding(
        id="garbage",
        title=f"the garbage collector takes {share(lost)} of the fit",
        advice="Tame the garbage collector",
        evidence=(f"{duration(paused_s)} of pauses inside steps",),
        action="gc.freeze() after set-up, and gc.collect() only between epochs",
        **costs(lost, scope="fit"),
        confirm="trainperf compare BEFORE AFTER: gc_s falls",
    )
