"""Groups of traces that one job left: only their ranks are compared and averaged.

A trace does not name its job.  Traces of one job have a rank each, one number of ranks, steps in
common, and begin at about the same time.  One job may run on unlike devices: they tell jobs apart
only where the number of ranks or the time is not known.
"""

from collections.abc import Iterable

from trainperf.traces.metrics.spans import PROFILER_STEP
from trainperf.traces.results import RankAnalysis, RankTrace


APART_NS = 600 * 10**9
"""Ranks trace the same steps at the same time; the clocks of their hosts may differ by minutes."""

_EPOCH_NS = 946_684_800 * 10**9
"""A trace that begins before the year 2000 counts from something else, such as the host's start."""


def jobs(analyses: Iterable[RankAnalysis]) -> list[list[RankAnalysis]]:
    """The analyses by job, each in the order given."""
    groups: list[list[RankAnalysis]] = []
    for each in analyses:
        for group in groups:
            if all(_may_be_of_one_job(each, other) for other in group):
                group.append(each)
                break
        else:
            groups.append([each])
    return groups


def _may_be_of_one_job(first: RankAnalysis, second: RankAnalysis) -> bool:
    a, b = first.trace, second.trace
    return (
        None not in (a.rank, b.rank)
        and a.rank != b.rank
        and 1 not in (a.world_size, b.world_size)
        and _agree(a.world_size, b.world_size)
        and _at_one_time(first.began_ns, second.began_ns)
        and _share_a_step(a, b)
        and ((_placed(first) and _placed(second)) or _agree(a.device, b.device))
    )


def _placed(analysis: RankAnalysis) -> bool:
    """Whether the number of its job's ranks and the time at which it began are known."""
    return analysis.trace.world_size is not None and analysis.began_ns >= _EPOCH_NS


def _agree(first: object, second: object) -> bool:
    """A file that is cut short may lack what the others say."""
    return first == second or None in (first, second)


def _at_one_time(first_ns: int, second_ns: int) -> bool:
    return min(first_ns, second_ns) < _EPOCH_NS or abs(first_ns - second_ns) <= APART_NS


def _share_a_step(a: RankTrace, b: RankTrace) -> bool:
    """Only the numbers of the profiler's own marks mean the same in two traces."""
    if not a.step_source == b.step_source == PROFILER_STEP:
        return True
    return not {step.step for step in a.steps}.isdisjoint(step.step for step in b.steps)
