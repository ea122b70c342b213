"""A recorded trace as a device: the real probe reads it, at the moments its host went through.

The host's moments (loader, copies, backward, update) are the trace's; a mark that is recorded at
one of them is reached when the work has ended that was launched on its stream before, and not
earlier than it was recorded.  What an event itself costs is not in a trace, and left out.
"""

import numpy as np
import numpy.typing as npt
from support.memory_sink import MemorySink

from trainperf.core.arrays import Places
from trainperf.core.steps.records import RunInfo
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.device_marks import Mark, MarksProbe
from trainperf.testing import FakeClock
from trainperf.traces.event_table import NONE, EventTable, Kind
from trainperf.traces.metrics.device import DeviceUse, device_work
from trainperf.traces.metrics.host import host_work
from trainperf.traces.metrics.spans import find_steps, nest


ACCUMULATED = "torch::autograd::AccumulateGrad"


class ReplayedEvent:
    """A timing event on a stream of the trace."""

    def __init__(self, device: "ReplayedDevice") -> None:
        self._device, self._reached_ns = device, -1

    def record(self, stream: int, /) -> None:
        """Stand behind what was launched there before now."""
        self._reached_ns = self._device.done_ns(stream)

    def query(self) -> bool:
        """Whether the device has come here by now."""
        return self._reached_ns <= self._device.clock.now_ns

    def elapsed_time(self, end_event: "ReplayedEvent", /) -> float:
        """Milliseconds to another that was reached as well."""
        assert self.query()
        assert end_event.query()
        return (end_event._reached_ns - self._reached_ns) / 1e6

    def synchronize(self) -> None:
        """Nobody may."""
        raise AssertionError("a wait for the device")


class ReplayedDevice:
    """The streams of a trace, asked on the trace's own clock."""

    def __init__(self, table: EventTable, clock: FakeClock) -> None:
        self.table, self.clock = table, clock
        self.steps = find_steps(table)
        self.work = device_work(table, self.steps)
        launched = self.work.launch != NONE
        self.launch_ns = np.where(
            launched, table.start_ns[self.work.launch], self.work.start.min(initial=0)
        )
        self._stream = table.stream[self.work.row]
        computes = self.work.kernel & self.work.used_for(DeviceUse.COMPUTE)
        self.compute = int(np.bincount(self._stream[computes]).argmax())
        self._communicates = self.work.used_for(DeviceUse.COMMUNICATION)
        self._held_ns = 0

    def event(self) -> ReplayedEvent:
        """A new one."""
        return ReplayedEvent(self)

    def current_stream(self) -> int:
        """The one that computes."""
        return self.compute

    def is_capturing(self) -> bool:
        """Never."""
        return False

    def wait_for_collectives(self) -> None:
        """Let the computing stream wait for the collectives launched so far, as DDP does."""
        self._held_ns = self._end_ns(self._communicates)

    def done_ns(self, stream: int) -> int:
        """When the device has done what was launched there before now."""
        return max(self.clock.now_ns, self._held_ns, self._end_ns(self._stream == stream))

    def _end_ns(self, wanted: npt.NDArray[np.bool_]) -> int:
        return int(self.work.end[wanted & (self.launch_ns < self.clock.now_ns)].max(initial=0))


class TailedMarks(MarksProbe):
    """With the all-reduce tail, which under DDP another probe asks for."""

    facts = (*MarksProbe.facts, "tail_ns")


class ReplayedFit:
    """The steps of a trace, taken by the real monitor, clock and probe."""

    def __init__(self, table: EventTable) -> None:
        self.clock, self.sink = FakeClock(0), MemorySink()
        self.device = ReplayedDevice(table, self.clock)
        device_clock = DeviceClock(self.device)
        self.marks, self.monitor = TailedMarks(device_clock), Monitor(self.clock)
        info = RunInfo(device="cuda")
        parts = RunParts(info=info, probes=[self.marks], sinks=[self.sink], device=device_clock)
        self.monitor.start(parts)
        self.host = host_work(table, self.device.steps, self.device.work)
        self.operators = nest(table, table.rows(Kind.CPU_OP))
        steps = self.device.steps
        for place in range(len(steps)):
            self._step(place, int(steps.start[place]), int(steps.end[place]))
        self.clock.set(max(self.clock.now_ns, int(self.device.work.end.max())))
        self.monitor.finish("finished")
        assert self.monitor.guard.faults == {}

    def ms(self, fact: str) -> list[float]:
        """A fact of every step, in milliseconds."""
        return [(record.facts[fact] or 0) / 1e6 for record in self.sink.records]

    def leads(self) -> list[float]:
        """Marks that the device had not come to when backward was over, of every step."""
        return [record.facts["lead_backward"] or 0 for record in self.sink.records]

    def _step(self, place: int, start_ns: int, end_ns: int) -> None:
        recorder = self.monitor.recorder
        self.clock.set(start_ns)
        recorder.boundary()
        for at_ns, mark in sorted(self._moments(place, start_ns, end_ns)):
            self.clock.set(at_ns)
            if mark is Mark.BACKWARD_ENDS:
                self.device.wait_for_collectives()
            self.marks.mark(mark)
        self.clock.set(end_ns)
        self.monitor.micro_batch(None, None, complete=True)
        recorder.last_hook_done()

    def _moments(self, place: int, start_ns: int, end_ns: int) -> list[tuple[int, Mark]]:
        """When the host came to each mark of a step."""
        table, host = self.device.table, self.host
        moments: list[tuple[int, Mark]] = []
        for begun, ended in zip(host.loader.start, host.loader.end, strict=True):
            if start_ns <= begun < end_ns:
                moments += [(int(begun), Mark.FETCH_BEGINS), (int(ended), Mark.FETCH_ENDS)]
        copies = self._copies(place)
        if len(copies):
            moments += [
                (int(table.start_ns[copies].min()), Mark.COPY_BEGINS),
                (int(table.end_ns[copies].max()), Mark.COPY_ENDS),
            ]
        starts = table.start_ns[host.engine]
        engine = host.engine[(starts >= start_ns) & (starts < end_ns)]
        accumulated = [row for row in engine if table.label(int(row)).endswith(ACCUMULATED)]
        if accumulated:
            moments += [
                (int(table.start_ns[engine].min()), Mark.FORWARD_ENDS),
                (int(table.start_ns[accumulated[-1]]), Mark.LAST_GRADIENT),
                (int(table.end_ns[engine].max()), Mark.BACKWARD_ENDS),
            ]
        return moments

    def _copies(self, place: int) -> Places:
        """Operators that copy to the device before the step's first kernel: the batch's."""
        work, launch_ns = self.device.work, self.device.launch_ns
        mine = (work.step == place) & (work.launch != NONE)
        first = launch_ns[mine & work.kernel].min(initial=np.iinfo(np.int64).max)
        rows = work.launch[mine & work.used_for(DeviceUse.TO_DEVICE) & (launch_ns < first)]
        outermost = self.operators.around(self.device.table, rows)
        for level in self.operators.ancestors(outermost):
            outermost = np.where(level == NONE, outermost, level)
        return np.asarray(self.operators.rows[outermost[outermost != NONE]])
