"""Rule about ranks that wait for each other."""

from trainperf.analysis.rules.base import Evidence, TraceTime, steady_step_s
from trainperf.analysis.summary.schema import Summary, SyncPoint
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, share, words
from trainperf.core.phases import Phase


TRACE_TIME: TraceTime = "communication"


def straggler(evidence: Evidence) -> Finding | None:
    """The ranks lose a notable part of the step to skew; the late one is named if it is one.

    The bound is the mean of what the fastest rank waits beyond the last one.
    """
    summary = evidence.summary
    step_s, points = steady_step_s(summary), summary.synchronisation
    if not step_s or not points:
        return None
    lost = _lost_s(summary) / step_s
    named = [point for point in points if point.straggler is not None]
    # A few steps with a long wait are no habit of the ranks.
    usual = max((point.skew_s or 0.0) for point in points) / step_s
    if not named and min(lost, usual) < LIMITS.notable:
        return None
    first = max(named, key=lambda point: point.lost_s, default=None)
    title = f"ranks lose {share(lost)} of the step waiting for each other"
    return Finding(
        id="straggler",
        title=title if first is None else f"rank {first.straggler} is late: {title}",
        advice="Even out the ranks" if first is None else f"Look at rank {first.straggler}",
        evidence=tuple(lateness(point) for point in points),
        action=_action(first),
        **costs(min(lost, 0.99), confidence="medium" if first is None else "high"),
        effort="hours",
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls, no rank is named",
    )


def lateness(point: SyncPoint) -> str:
    """One synchronisation point in a line, e.g. for a report's block about ranks."""
    if point.straggler is None or point.late_s is None:
        return f"{duration(point.lost_s)} per step at {point.point}, not always for the same rank"
    cause = (
        f"{duration(point.cause_s)} in {words(point.cause)}"
        if point.cause and point.cause_s is not None
        else "no host phase explains it: a slower device?"
    )
    return (
        f"rank {point.straggler} late by {duration(point.late_s)} at {point.point}, "
        f"{share(point.late_fraction)} of steps: {cause}"
    )


def _lost_s(summary: Summary) -> float:
    """What a step loses at all its points together.

    A device that works on while its host goes ahead waits in backward, and the host waits for the
    same delay at the end of the step: there the points are not added.
    """
    lost_s = [point.lost_s for point in summary.synchronisation]
    return sum(lost_s) if summary.run.device == "cpu" else max(lost_s)


def _action(point: SyncPoint | None) -> str:
    if point is None:
        return "give every rank the same work: batches of equal length, the same input speed"
    if point.cause == Phase.DATA_WAIT.label:
        return f"give rank {point.straggler} a loader as fast as the others'"
    rank = f"rank {point.straggler}"
    if point.cause:
        return f"find what {rank} does in {words(point.cause)} that the others do not"
    return f"compare the device and host of rank {point.straggler} with the others'"
