"""Rule about a device that waits for the host."""

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.host.launch_bound import launch_bound
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import share
from trainperf.core.phases import Phase
from trainperf.core.readings import DATA_STALL_FRACTION, HOST_BOUND_FRACTION


TRACE_TIME: TraceTime = "host"
SAMPLED = Phase.FORWARD


def host_bound(evidence: Evidence) -> Finding | None:
    """At the end of most forwards and backwards the device had already caught up.

    How much that costs cannot be told without a trace or an audit, so no bound is given.

    Wrong where: something drains the device once in every step for another reason, e.g. a metric.
    To confirm: `trainperf try --only compile SCRIPT`; a trace shows idle time before launches.
    """
    summary = evidence.summary
    bound = summary.value(HOST_BOUND_FRACTION)
    stalled = summary.value(DATA_STALL_FRACTION) or 0.0
    if bound is None or summary.run.steady_steps < LIMITS.steps:
        return None
    # A device that starved in the loader has caught up for a reason that has its own rule.
    if bound < LIMITS.host_bound or stalled >= LIMITS.notable:
        return None
    if launch_bound(evidence) is not None:  # it says why, and where
        return None
    return Finding(
        id="host_bound",
        title=f"the device waits for the host in {share(bound)} of the steps",
        advice="Launch less, or larger",
        evidence=("the device had caught up when forward and backward returned",),
        action=f"{summary.run.loop.compiled}, a larger batch, or fewer .item() calls; faster "
        "kernels gain nothing here",
        confidence="medium",
        severity="medium",
        effort="hours",
        confirm="trainperf compare BEFORE AFTER: host_bound_fraction falls, and the step with it",
    )
