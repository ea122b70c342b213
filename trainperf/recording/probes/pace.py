"""Feeds how fast the machine is: a small fixed piece of Python, timed between steps all along.

A host that lends its processors out gives a training between half and all of their speed, for
seconds at a time, and its steps alone do not tell that from a change of the code.  The work is
timed where and when the training runs, as its core is then; as often as costs 0.1 % of the time.
"""

import math
from typing import ClassVar

from trainperf.core.machine.clocks import pace_ns
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft, Recorder
from trainperf.recording.schedule import CostLimit


INTERRUPTED = 4
"""A timing so many times the shortest says nothing about the cost of the next."""


class PaceProbe(Probe):
    """Times the work at the end of a step, now and then.

    Among our own work after a step, and counted as such.  No measure of a device: for loops on a
    CPU.
    """

    name = "pace"
    facts: ClassVar[tuple[str, ...]] = ("pace_ns",)

    def attach(self, recorder: Recorder) -> None:
        """Begin with the first step."""
        super().attach(recorder)
        self._column = recorder.column("pace_ns")
        self._limit = CostLimit()
        self._least_ns = math.inf

    def look(self, draft: Draft) -> None:
        """Time the work."""
        now = self.recorder.now_ns()
        draft.facts[self._column] = pace_ns(self.recorder.now_ns)
        spent = self.recorder.now_ns() - now  # the work runs twice, and first with cold caches
        self._least_ns = min(self._least_ns, spent or math.inf)
        self._limit.done(now, round(min(spent, INTERRUPTED * self._least_ns)))
        self.due_ns = self._limit.next_ns
