"""Rule about callbacks and hooks that take much of the step."""

from trainperf.analysis.rules.base import Evidence, phase_fraction
from trainperf.analysis.rules.host.base import hands_to_threads, threads_of
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, share
from trainperf.core.phases import Phase
from trainperf.core.readings import OVERHEAD_S, STEP_MEAN_S


SAMPLED = Phase.CALLBACKS


@hands_to_threads
def callbacks(evidence: Evidence) -> Finding | None:
    """User hooks are a notable part of the step; the most expensive one is named.

    What trainperf costs, which is mostly in its own hooks, is not theirs.  What they hand to a
    thread, as loggers do, goes with them: its processor time widens the bound.

    Wrong where: the hook waits for the device, and pays for what other phases have launched.
    To confirm: `trainperf try --only no_callback_NAME SCRIPT`.
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
    threads = threads_of(summary)
    busy = " and ".join(threads)
    return Finding(
        id="callbacks",
        title=f"callbacks take {share(lost)} of the step",
        advice=f"Lighten {heaviest}",
        evidence=(
            *(f"{hook}: {duration(spent_s)} per step" for hook, spent_s in named),
            *(
                f"a thread of {name} computes {duration(spent_s)} per step meanwhile"
                for name, spent_s in threads.items()
            ),
        )
        or ("no hook was timed by name",),
        action=f"do the work of {heaviest} every n-th step, or not at all"
        + (f"; that frees the thread of {busy}, too" if threads else ""),
        **costs(lost),
        effort="hours",
        confirm="trainperf compare BEFORE AFTER: phase_callbacks_s falls",
    )
