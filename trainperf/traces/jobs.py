"""Groups of traces that one job left: only their ranks are compared and averaged.

A trace does not name its job.  Traces of one job have a rank each, one number of ranks, steps in
common, and begin at about the same time.  One job may run on unlike devices: they tell jobs apart
only where the number of ranks or the time is not known.
"""

from collections.abc import Iterable
from datetime import datetime, timezone
from itertools import repeat

from trainperf.traces.results import PROFILER_STEP, RankAnalysis


APART_NS = 600 * 10**9
"""Ranks trace the same steps at the same time; the clocks of their hosts may differ by minutes."""

_EPOCH_NS = int(datetime(2000, 1, 1, tzinfo=timezone.utc).timestamp()) * 10**9
"""A trace that begins before the year 2000 counts from something else, such as the host's start."""


def jobs(analyses: Iterable[RankAnalysis]) -> list[list[RankAnalysis]]:
    """The analyses by job, each in the order given."""
    groups: list[list[RankAnalysis]] = []
    for each in analyses:
        fitting = (group for group in groups if all(map(_go_together, group, repeat(each))))
        group = next(fitting, [])
        if not group:
            groups.append(group)
        group.append(each)
    return groups


def _go_together(first: RankAnalysis, second: RankAnalysis) -> bool:
    """Whether both may be of one job; a file that is cut short may lack what others say."""
    old, new = first.trace, second.trace
    sizes = (old.world_size, new.world_size)
    # A clock that counts from another zero tells nothing.
    began_ns = [each.began_ns for each in (first, second) if each.began_ns >= _EPOCH_NS]
    # Numbers that the profiler has not marked mean nothing elsewhere.
    marked = [trace for trace in (old, new) if trace.step_source == PROFILER_STEP]
    steps = [{step.step for step in trace.steps} for trace in marked]
    is_sure = None not in sizes and len(began_ns) == 2
    obstacles = (
        None in (old.rank, new.rank) or old.rank == new.rank,
        1 in sizes or not _agree(*sizes),
        not is_sure and not _agree(old.device, new.device),
        len(began_ns) == 2 and abs(began_ns[0] - began_ns[-1]) > APART_NS,
        len(steps) == 2 and steps[0].isdisjoint(steps[-1]),
    )
    return not any(obstacles)


def _agree(value: object, other: object) -> bool:
    return value is None or other is None or value == other
