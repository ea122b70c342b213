"""Late ranks in words: who the others wait for at a point of the step, by how much, and why."""

from collections.abc import Mapping, Sequence

from trainperf.analysis.summary.schema import SyncPoint
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import duration, plural, ranks_named, share, words
from trainperf.core.groups import grouped
from trainperf.core.loop_kind import meeting_place
from trainperf.core.steps.records import Scalar


def late_and_why(named: Sequence[SyncPoint]) -> str:
    """Who is late, and why; e.g. `rank 3, data wait`."""
    if not named:
        return "not always the same rank"
    if any(point.host for point in named):
        return who(named[0])
    by_cause = grouped((late.cause, late.rank) for point in named for late in point.late)
    return " and ".join(
        f"{ranks_named(ranks)}{f', {in_words(cause)}' if cause else ''}"
        for cause, ranks in by_cause.items()
    )


def who(point: SyncPoint) -> str:
    """The ranks that are late at a point, or their host."""
    if point.host:
        return f"host {plain(point.host)} ({plural(len(point.late), 'rank')})"
    return ranks_named([late.rank for late in point.late])


def in_words(phase: str) -> str:
    """Where in the step that is, e.g. `data wait`."""
    return "outside every phase" if phase == "other" else words(phase)


def within(phase: str) -> str:
    """The same after a verb, e.g. `in data wait`."""
    return in_words(phase) if phase == "other" else f"in {in_words(phase)}"


def lateness(point: SyncPoint, settings: Mapping[str, Scalar]) -> str:
    """One synchronisation point in a line, e.g. for a report's block about ranks."""
    place = meeting_place(point.point, settings)
    if not point.late:
        often = "" if point.who == "nobody" else ", not always for the same rank"
        return f"{duration(point.even_s)} per step at {place}{often}"
    if len(point.late) > 2:
        most = max(late.late_s for late in point.late)
        causes = dict.fromkeys(in_words(late.cause) for late in point.late if late.cause)
        return (
            f"{who(point)} late by up to {duration(most)} at {place}, "
            f"{share(point.late_fraction)} of steps: {' and '.join(causes) or 'no host phase'}"
        )
    return "; ".join(
        f"rank {late.rank} late by {duration(late.late_s)} at {place}, "
        f"{share(point.late_fraction)} of steps: "
        + (
            f"{duration(late.cause_s)} {within(late.cause)}"
            if late.cause and late.cause_s is not None
            else "no host phase explains it: a slower device?"
        )
        for late in point.late
    )
