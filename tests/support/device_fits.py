"""A fit on an asynchronous device that is real: what the device half measures there."""

import time
from collections.abc import Callable, Sequence

import torch
from support.memory_sink import MemorySink

from trainperf.accelerators import accelerator_of
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import Phase
from trainperf.core.steps.records import RunInfo
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.device_marks import Mark, MarksProbe


class AsynchronousFit:
    """Steps of a loop, marked on the device; what it does there is the test's."""

    def __init__(self, device: torch.device, probes: Sequence[Probe] = ()) -> None:
        self.clock = DeviceClock(accelerator_of(device))
        self.marks = MarksProbe(self.clock)
        self.monitor = Monitor(monotonic_ns)
        self.sink = MemorySink()
        self.slept_ns: list[int] = []
        # The record's kinds of device are a CPU and one that is asynchronous, which is named so.
        self.monitor.start(
            RunParts(
                info=RunInfo(device="cuda"),
                probes=[self.marks, *probes],
                sinks=[self.sink],
                device=self.clock,
            )
        )

    def step(self, compute: Callable[[], None], fetch_s: float = 0.0) -> None:
        """Sleep as a loader does, then queue what is computed."""
        recorder = self.monitor.recorder
        recorder.boundary()
        self.marks.mark(Mark.FETCH_BEGINS)
        recorder.enter(Phase.DATA_WAIT)
        begun = time.perf_counter_ns()
        time.sleep(fetch_s)
        self.slept_ns.append(time.perf_counter_ns() - begun)
        recorder.leave()
        self.marks.mark(Mark.FETCH_ENDS)
        recorder.enter(Phase.FORWARD)
        compute()
        recorder.leave()
        self.marks.mark(Mark.FORWARD_ENDS)
        self.monitor.micro_batch(None, None, complete=True)
        recorder.last_hook_done()

    def finish(self) -> "AsynchronousFit":
        """End the fit, and take what was written."""
        self.monitor.finish("finished")
        return self

    def fact(self, name: str) -> list[int | float | None]:
        """Return a fact of every step."""
        return [record.facts[name] for record in self.sink.records]
