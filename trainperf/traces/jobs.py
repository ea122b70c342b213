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
    groups: list[_Job] = []
    for each in analyses:
        group = next((group for group in groups if group.may_have(each)), None)
        if group is None:
            groups.append(_Job([each]))
        else:
            group.add(each)
    return [group.members for group in groups]


class _Job:
    """Traces of one job, and what a further one is compared with: not each of them with each."""

    def __init__(self, members: Iterable[RankAnalysis]) -> None:
        self.members: list[RankAnalysis] = []
        self._ranks: set[int | None] = set()
        self._sizes: set[int | None] = set()
        self._began_ns: list[int] = []
        """First and last, of those whose time is known."""
        self._steps: set[frozenset[int]] = set()
        """Different sets of steps that the profiler has marked."""
        self._devices: set[str | None] = set()
        self._unplaced: set[str | None] = set()
        """Devices of those whose number of ranks or time is not known."""
        for member in members:
            self.add(member)

    def may_have(self, other: RankAnalysis) -> bool:
        """Whether another trace may be of the same job as each of them."""
        trace = other.trace
        if trace.rank is None or trace.rank in self._ranks or None in self._ranks:
            return False
        if 1 in {trace.world_size, *self._sizes}:
            return False
        devices = self._unplaced if _placed(other) else self._devices
        steps = _marked(trace)
        return (
            _agree(trace.world_size, self._sizes)
            and _agree(trace.device, devices)
            and self._at_one_time(other.began_ns)
            and (steps is None or not any(map(steps.isdisjoint, self._steps)))
        )

    def add(self, member: RankAnalysis) -> None:
        """It is of this job."""
        trace = member.trace
        self.members.append(member)
        self._ranks.add(trace.rank)
        self._sizes.add(trace.world_size)
        self._devices.add(trace.device)
        if not _placed(member):
            self._unplaced.add(trace.device)
        if member.began_ns >= _EPOCH_NS:
            moments = [*self._began_ns, member.began_ns]
            self._began_ns = [min(moments), max(moments)]
        steps = _marked(trace)
        if steps is not None:
            self._steps.add(steps)

    def _at_one_time(self, began_ns: int) -> bool:
        return began_ns < _EPOCH_NS or all(
            abs(began_ns - moment) <= APART_NS for moment in self._began_ns
        )


def _placed(analysis: RankAnalysis) -> bool:
    """Whether the number of its job's ranks and the time at which it began are known."""
    return analysis.trace.world_size is not None and analysis.began_ns >= _EPOCH_NS


def _agree(value: object, others: Iterable[object]) -> bool:
    """A file that is cut short may lack what the others say."""
    return value is None or all(other in (value, None) for other in others)


def _marked(trace: RankTrace) -> frozenset[int] | None:
    """Its steps, where the profiler has marked them: other numbers mean nothing elsewhere."""
    if trace.step_source != PROFILER_STEP:
        return None
    return frozenset(step.step for step in trace.steps)
