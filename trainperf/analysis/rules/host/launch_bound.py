"""Rule about operators too small to be worth their launch."""

from trainperf.analysis.rules.base import Evidence, TraceTime, leaves_cold_caches
from trainperf.analysis.rules.host.hidden_syncs import hidden_syncs
from trainperf.analysis.rules.host.host_code import host_code
from trainperf.analysis.rules.host.logging import logging
from trainperf.analysis.rules.host.metrics_every_batch import metrics_every_batch
from trainperf.analysis.rules.operators.base import (
    PASSES,
    AuditedStep,
    audited,
    is_large,
    launch_s,
    place_of,
    total_s,
)
from trainperf.core.findings import LIMITS, Finding, findings_of
from trainperf.core.formatting.units import count, duration, share
from trainperf.core.readings import HOST_BOUND_FRACTION


TRACE_TIME: TraceTime = "host"


@leaves_cold_caches
def launch_bound(evidence: Evidence) -> Finding | None:
    """Most operators take longer to launch than to compute, and the step waits for launches.

    On a device only where the always-on marks say that it waits for the host.  The bound: all of
    forward and backward but the other operators' time, and these at their floor.

    Wrong where: the audited step is smaller than most: larger batches hide launches.
    To confirm: `trainperf try --only compile SCRIPT`; `trainperf prove` with a larger batch, in
    samples per second.
    """
    step = audited(evidence)
    if step is None or not _waits_for_host(evidence, step):
        return None
    passes = [row for row in step.operators if row.use.part in PASSES]
    tiny = [row for row in passes if row.floor.bound == "launch" and not is_large(row, step)]
    calls = sum(row.use.calls for row in tiny)
    # Launching 100 takes about a millisecond, Python and autograd around them included.
    if calls < 100 or 2 * calls < sum(row.use.calls for row in passes):
        return None
    floor_s = sum(row.floor.floor_s for row in tiny)
    # Python between the calls belongs to no operator and goes with them, unless a line is named.
    saved_s = step.passes_s - (total_s(passes) - total_s(tiny)) - floor_s
    lost = step.fraction(saved_s) - named_fraction(evidence)
    if lost < 0.30:  # in a healthy step of a few ms small operators add up to a tenth
        return None
    spent = f"{duration(step.step_s)} per step, for work of {duration(floor_s)}"
    return Finding(
        id="launch_bound",
        title=f"{count(calls)} tiny operators keep the step busy launching",
        advice="Launch less, or larger",
        evidence=(
            f"up to {share(lost)} of {spent}",
            f"one launch takes {duration(launch_s(step.light))} here",
            *step.lines(tiny, 2),
        ),
        action="a larger batch, one operator instead of a Python loop over its rows or time "
        'steps, or torch.compile(model, mode="reduce-overhead")',
        **step.costs(lost),
        effort="hours",
        where=place_of(tiny),
        confirm="trainperf compare BEFORE AFTER in samples per second",
    )


def _waits_for_host(evidence: Evidence, step: AuditedStep) -> bool:
    """On a CPU the host is the device."""
    bound = evidence.summary.value(HOST_BOUND_FRACTION)
    return step.audit.device == "cpu" or (bound is not None and bound >= LIMITS.host_bound)


def named_fraction(evidence: Evidence) -> float:
    """Share of the step that a line of the user's code has been named for."""
    findings = findings_of((hidden_syncs, host_code, logging, metrics_every_batch), evidence)
    return min(1.0, sum(finding.fraction or 0.0 for finding in findings))
