"""Samples of the probes after a step, each as often as its own cost allows."""

import sys
from collections.abc import Sequence

from trainperf.core.machine.clocks import HostClock
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe, overriding
from trainperf.recording.recorder import Draft
from trainperf.recording.schedule import CostLimit


class Sampling:
    """Calls `sample` of the probes that have one when it is due."""

    def __init__(self, guard: Guard, clock: HostClock, probes: Sequence[Probe] = ()) -> None:
        self._clock = clock
        self._samples = [
            (
                CostLimit(probe.share, probe.least_ns, probe.interrupted),
                guard.wrap(probe.name, probe.sample),
            )
            for probe in probes
            if overriding([probe], "sample")
        ]

    def after(self, draft: Draft, now: int) -> int:
        """Take what is due after this step; returns the host time of the next sample."""
        for limit, sample in self._samples:
            if now >= limit.next_ns:
                begun = self._clock()
                sample(draft)
                limit.done(now, self._clock() - begun)  # from now: they come due together
        return min([limit.next_ns for limit, _ in self._samples], default=sys.maxsize)

    def last(self, draft: Draft) -> None:
        """Take every sample, due or not."""
        for _, sample in self._samples:
            sample(draft)
