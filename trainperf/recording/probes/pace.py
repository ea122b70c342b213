"""Feeds how fast the machine is: a small fixed piece of Python, timed between steps all along.

A host that lends its processors out gives a training between half and all of their speed, for
seconds at a time, and its steps alone do not tell that from a change of the code.  The work is
timed where and when the training runs, as its core is then; as often as costs 0.1 % of the time.
"""

import math
from typing import ClassVar

from trainperf.core.machine.clocks import pace_ns
from trainperf.recording.probes.base import Probe, add
from trainperf.recording.recorder import Draft, Recorder
from trainperf.recording.schedule import CostLimit


INTERRUPTED = 4
"""A timing so many times the shortest says nothing about the cost of the next."""


class PaceProbe(Probe):
    """Times the work at the end of a step, now and then.

    Its time falls to the next step's data wait and is counted as our overhead.  No measure of a
    device: for loops on a CPU.
    """

    name = "pace"
    facts: ClassVar[tuple[str, ...]] = ("pace_ns",)

    def attach(self, recorder: Recorder) -> None:
        """Begin with the first step."""
        super().attach(recorder)
        self._column = recorder.column("pace_ns")
        self._overhead = recorder.column("overhead_ns")
        self._limit = CostLimit()
        self._least_ns = math.inf

    def close(self, draft: Draft) -> None:
        """Time the work if it is due.  Runs every step."""
        now = self.recorder.now_ns()
        if now < self._limit.next_ns:
            return
        draft.facts[self._column] = pace_ns(self.recorder.now_ns)
        spent = self.recorder.now_ns() - now  # the work runs twice, and first with cold caches
        add(draft, self._overhead, spent)
        self._least_ns = min(self._least_ns, spent or math.inf)
        self._limit.done(now, round(min(spent, INTERRUPTED * self._least_ns)))
