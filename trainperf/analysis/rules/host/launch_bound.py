"""Rule about operators too small to be worth their launch."""

from trainperf.analysis.rules.base import Evidence, TraceTime
from trainperf.analysis.rules.host.hidden_syncs import hidden_syncs
from trainperf.analysis.rules.host.host_code import host_code
from trainperf.analysis.rules.host.logging import logging
from trainperf.analysis.rules.host.metrics_every_batch import metrics_every_batch
from trainperf.analysis.rules.operators.base import (
    PASSES,
    AuditedStep,
    Timed,
    audited,
    is_large,
    launch_s,
    place_of,
    total_s,
)
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import count, duration, share
from trainperf.core.readings import HOST_BOUND_FRACTION


TRACE_TIME: TraceTime = "host"

WORTH = 0.30
"""Share of the step; in a healthy step of a few ms small operators add up to a tenth."""

FEWEST = 100
"""Calls that are launched in about a millisecond, Python and autograd around them included."""


def launch_bound(evidence: Evidence) -> Finding | None:
    """Most operators take longer to launch than to compute, and the step waits for launches.

    On a device only where the always-on marks say that it waits for the host.  The bound: all of
    forward and backward but the other operators' time, and these at their floor.
    """
    step = audited(evidence)
    if step is None or not _waits_for_host(evidence, step):
        return None
    passes = [row for row in step.operators if row.use.part in PASSES]
    tiny = [row for row in passes if row.floor.bound == "launch" and not is_large(row, step)]
    calls = sum(row.use.calls for row in tiny)
    if calls < FEWEST or 2 * calls < sum(row.use.calls for row in passes):
        return None
    # Python between the launches that a line was named for is that line's.
    lost = step.fraction(_saved_s(step, passes, tiny)) - named_fraction(evidence)
    if lost < WORTH:
        return None
    return Finding(
        id="launch_bound",
        title=f"{count(calls)} tiny operators keep the step busy launching",
        advice="Launch less, or larger",
        evidence=(
            (
                f"up to {share(lost)} of {duration(step.step_s)} per step, for work of "
                f"{duration(sum(row.floor.floor_s for row in tiny))}"
            ),
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


def _saved_s(step: AuditedStep, passes: list[Timed], tiny: list[Timed]) -> float:
    rest_s = total_s(passes) - total_s(tiny)
    floor_s = sum(row.floor.floor_s for row in tiny)
    # Python between the calls, which belongs to no operator, goes with them.
    return step.passes_s - rest_s - floor_s


def named_fraction(evidence: Evidence) -> float:
    """Share of the step that a line of the user's code has been named for."""
    findings = [rule(evidence) for rule in (hidden_syncs, host_code, logging, metrics_every_batch)]
    return min(1.0, sum(finding.fraction or 0.0 for finding in findings if finding is not None))
