"""Looks of the probes after a step, now and then: samples, and what has a schedule of its own."""

import sys
from collections.abc import Callable, Sequence

from trainperf.core.machine.clocks import HostClock
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe, overriding
from trainperf.recording.recorder import Draft
from trainperf.recording.schedule import CostLimit, Interval


SAMPLE_NS = (10_000_000, 250_000_000)
"""Time between samples of what is dear to read, e.g. of the allocator: at first, and later on."""

SAMPLE_SHARE = 1e-3
"""Of the time, for all that is sampled together."""


class ProbeLooks:
    """Calls `sample` and `look` of the probes when they are due.  Each part is asked only then."""

    def __init__(self, guard: Guard, clock: HostClock, probes: Sequence[Probe] = ()) -> None:
        self._guard = guard
        self._clock = clock
        self.sample: Callable[[Draft], None] = guard.each(overriding(probes, "sample"))
        """Takes a sample, due or not."""
        self._limit = CostLimit(SAMPLE_SHARE)
        self._due = Interval(*SAMPLE_NS)
        self._look: Callable[[Draft], None] = guard.each(overriding(probes, "look"))
        self._own = [probe for probe in probes if overriding([probe], "look")]
        self._own_ns = 0

    def after(self, draft: Draft, now: int) -> int:
        """Look at what is due after this step; returns the host time of the next look."""
        if now >= self._limit.next_ns and self._due.due(now):
            begun = self._clock()
            self.sample(draft)
            ended = self._clock()
            self._limit.done(ended, ended - begun)
        if now >= self._own_ns:
            self._look(draft)
            faults = self._guard.faults
            due_ns = [probe.due_ns for probe in self._own if probe.name not in faults]
            self._own_ns = min(due_ns, default=sys.maxsize)
        return min(max(self._due.next_ns, self._limit.next_ns), self._own_ns)
