"""Who is late at a point, for tests of one late rank."""

from trainperf.analysis.summary.schema import LateRank, SyncPoint


NOBODY = LateRank(rank=-1, late_s=0.0, cause=None, cause_s=None)
"""Stands for no rank."""


def latest(point: SyncPoint) -> LateRank:
    """The rank that comes last at a point, or `NOBODY`."""
    return max(point.late, key=lambda late: late.late_s, default=NOBODY)


def named(point: SyncPoint) -> tuple[int, str | None]:
    """That rank and its cause."""
    late = latest(point)
    return late.rank, late.cause
