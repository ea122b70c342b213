"""Rule about ranks that wait for each other."""

from collections.abc import Sequence

from trainperf.analysis.rules.base import Evidence, TraceTime, steady_step_s, warm_bound
from trainperf.analysis.summary.ranks import saved_s
from trainperf.analysis.summary.schema import LateRank, Summary, SyncPoint
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import duration, plural, ranks_named, share, words
from trainperf.core.loop_kind import meeting_place
from trainperf.core.phases import Phase


TRACE_TIME: TraceTime = "communication"

_OUTSIDE = "outside every phase"
"""What people are told instead of `other`."""

_MOST_APART = 2
"""Ranks of which each has its own figures in a sentence."""


def straggler(evidence: Evidence) -> Finding | None:
    """The ranks lose a notable part of the step to skew; those that are always late are named.

    The bound is what a step would save if every rank were as fast as the typical one, and on a host
    if the caches of ranks that no longer wait stayed warm.

    Wrong where: ranks meet at a point that is not timed, before the one that is: the wait is
    attributed late.
    To confirm: swap the hosts of two ranks: a slow host keeps the name, slow data does not.
    """
    summary = evidence.summary
    step_s, points = steady_step_s(summary), summary.synchronisation
    if not step_s or not points:
        return None
    lost = saved_s(points, "even_s", in_step=summary.run.device == "cpu") / step_s
    named = sorted((p for p in points if p.late), key=lambda point: -point.named_s)
    # A few steps with a long wait are no habit of the ranks.
    usual = max((point.skew_s or 0.0) for point in points) / step_s
    if not named and min(lost, usual) < LIMITS.notable:
        return None
    first = named[0] if named else None
    finding = Finding(
        id="straggler",
        title=f"{share(min(lost, 0.99))} of the step is lost to stragglers; {_names(named)}",
        advice="Even out the ranks" if first is None else f"Look at {_ranks(first)}",
        evidence=(*(lateness(point, summary) for point in points), *_gained(summary)),
        action=_action(first),
        **costs(min(lost, 0.99), confidence="medium" if first is None else "high"),
        effort="hours",
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls, no rank is named",
    )
    return warm_bound(finding, summary)


def _names(named: Sequence[SyncPoint]) -> str:
    """Who is late, and why; e.g. `rank 3, data wait`."""
    if not named:
        return "not always the same rank"
    if any(point.host for point in named):
        return _ranks(named[0])
    by_cause: dict[str | None, list[int]] = {}
    for late in (late for point in named for late in point.late):
        by_cause.setdefault(late.cause, []).append(late.rank)
    shown = [
        f"{ranks_named(ranks)}{f', {_place(cause)}' if cause else ''}"
        for cause, ranks in by_cause.items()
    ]
    return " and ".join(shown)


def _ranks(point: SyncPoint) -> str:
    """The ranks that are late at a point, or their host."""
    ranks = [late.rank for late in point.late]
    if point.host:
        return f"host {plain(point.host)} ({plural(len(ranks), 'rank')})"
    return ranks_named(ranks)


def _gained(summary: Summary) -> tuple[str, ...]:
    """What the step would be if the named ranks were as fast as the others."""
    predicted = summary.what_if
    if predicted is None or not predicted.ranks:
        return ()
    without = f"{duration(predicted.without_ranks_s)} instead of {duration(predicted.step_s)}"
    return (f"as fast as the median rank, a step would take {without}",)


def lateness(point: SyncPoint, summary: Summary) -> str:
    """One synchronisation point in a line, e.g. for a report's block about ranks."""
    place = meeting_place(point.point, summary.run.config)
    if not point.late:
        often = "" if point.who == "nobody" else ", not always for the same rank"
        return f"{duration(point.even_s)} per step at {place}{often}"
    if len(point.late) > _MOST_APART:
        most = max(late.late_s for late in point.late)
        causes = dict.fromkeys(_place(late.cause) for late in point.late if late.cause)
        return (
            f"{_ranks(point)} late by up to {duration(most)} at {place}, "
            f"{share(point.late_fraction)} of steps: {' and '.join(causes) or 'no host phase'}"
        )
    return "; ".join(_late(point, each, place) for each in point.late)


def _late(point: SyncPoint, late: LateRank, place: str) -> str:
    cause = (
        f"{duration(late.cause_s)} {_within(late.cause)}"
        if late.cause and late.cause_s is not None
        else "no host phase explains it: a slower device?"
    )
    return (
        f"rank {late.rank} late by {duration(late.late_s)} at {place}, "
        f"{share(point.late_fraction)} of steps: {cause}"
    )


def _within(phase: str) -> str:
    """E.g. `in data wait`."""
    return _place(phase) if phase == Phase.OTHER.label else f"in {_place(phase)}"


def _place(phase: str) -> str:
    return _OUTSIDE if phase == Phase.OTHER.label else words(phase)


def _action(point: SyncPoint | None) -> str:
    if point is None:
        return "give every rank the same work: batches of equal length, the same input speed"
    causes = {each.cause for each in point.late}
    ranks = _ranks(point)
    if causes == {Phase.DATA_WAIT.label}:
        return f"give {ranks} a loader as fast as the others'"
    cause = point.cause if len(causes) == 1 else None
    does = "does" if point.host or len(point.late) == 1 else "do"
    if cause:
        return f"find what {ranks} {does} {_within(cause)} that the others do not"
    if any(causes):
        return f"find what {ranks} {does} that the others do not"
    return f"compare the device and host of {ranks} with the others'"
