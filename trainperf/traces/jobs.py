"""Groups of traces that one job left: only their ranks are compared and averaged.

A trace does not name its job.  Traces of one job have a rank each, one number of ranks, steps in
common, and begin at about the same time.  One job may run on unlike devices: they tell jobs apart
only where the number of ranks or the time is not known.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from trainperf.traces.results import PROFILER_STEP, RankAnalysis


APART_NS = 600 * 10**9
"""Ranks trace the same steps at the same time; the clocks of their hosts may differ by minutes."""

_EPOCH_NS = int(datetime(2000, 1, 1, tzinfo=timezone.utc).timestamp()) * 10**9
"""A trace that begins before the year 2000 counts from something else, such as the host's start."""


def jobs(analyses: Iterable[RankAnalysis]) -> list[list[RankAnalysis]]:
    """The analyses by job, each in the order given."""
    groups: list[list[_Member]] = []
    for each in map(_member, analyses):
        group = next((group for group in groups if all(map(each.goes_with, group))), None)
        if group is None:
            groups.append([each])
        else:
            group.append(each)
    return [[member.analysis for member in group] for group in groups]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A trace, and what tells jobs apart."""

    analysis: RankAnalysis
    rank: int | None
    size: int | None
    began_ns: int | None
    """`None` where the time is not known, as that of a clock that counts from another zero."""
    device: str | None
    steps: frozenset[int] | None
    """Where the profiler has marked them: other numbers mean nothing elsewhere."""

    def goes_with(self, other: "_Member") -> bool:
        """Whether both may be of one job; a file that is cut short may lack what others say."""
        if None in (self.rank, other.rank) or self.rank == other.rank:
            return False
        if 1 in (self.size, other.size) or not _agree(self.size, other.size):
            return False
        is_sure = None not in (self.size, other.size, self.began_ns, other.began_ns)
        if not is_sure and not _agree(self.device, other.device):
            return False
        if self.began_ns and other.began_ns and abs(self.began_ns - other.began_ns) > APART_NS:
            return False
        return self.steps is None or other.steps is None or not self.steps.isdisjoint(other.steps)


def _member(analysis: RankAnalysis) -> _Member:
    trace = analysis.trace
    is_marked = trace.step_source == PROFILER_STEP
    return _Member(
        analysis=analysis,
        rank=trace.rank,
        size=trace.world_size,
        began_ns=analysis.began_ns if analysis.began_ns >= _EPOCH_NS else None,
        device=trace.device,
        steps=frozenset(step.step for step in trace.steps) if is_marked else None,
    )


def _agree(value: object, other: object) -> bool:
    return value is None or other is None or value == other
