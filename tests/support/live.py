"""Fits whose truth is planted: a recorder on a fake clock, a monitor on a simulated device."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from support.memory_sink import MemorySink

from trainperf.core.phases import PHASES, Phase
from trainperf.core.steps.codec import Entry
from trainperf.core.steps.records import GapRecord, RunInfo, StepRecord, Totals
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.device_marks import Mark, MarksProbe
from trainperf.recording.recorder import Draft, Recorder
from trainperf.recording.sinks.base import Sink
from trainperf.testing import FakeClock, SimulatedDevice


MS = 1_000_000


@dataclass(slots=True)
class Timeline:
    """A recorder, its clock, and everything it has finished."""

    tick_ns: int = 0
    clock: FakeClock = field(init=False)
    recorder: Recorder = field(init=False)
    steps: list[Draft] = field(default_factory=list)
    gaps: list[GapRecord] = field(default_factory=list)
    fit_ns: int = 0

    def __post_init__(self) -> None:
        self.clock = FakeClock(tick_ns=self.tick_ns)
        self.recorder = Recorder(self.clock)

    def wait(self, ms: float) -> None:
        """Let time pass."""
        self.clock.advance(ms=ms)

    def spend(self, phase: Phase, ms: float) -> None:
        """So long in a phase, and back."""
        self.recorder.enter(phase)
        self.wait(ms)
        self.recorder.leave()

    def step(self, ms: float = 1.0, *, complete: bool = True) -> None:
        """A micro-batch of one forward of so many milliseconds."""
        self.recorder.boundary()
        self.spend(Phase.FORWARD, ms)
        micro_batch_done(self.recorder, complete=complete)
        self.recorder.last_hook_done()

    def take(self) -> None:
        """Collect what is finished."""
        steps, gaps = self.recorder.take()
        self.steps += steps
        self.gaps += gaps

    def end(self) -> "Timeline":
        """End the fit and collect the rest."""
        self.fit_ns = self.recorder.end()
        self.take()
        return self

    def gaps_ms(self) -> list[tuple[str, float, float, int]]:
        """Every gap as name, start, length in milliseconds, and the step it follows."""
        return [(g.gap, g.start_ns / MS, g.duration_ns / MS, g.after_step) for g in self.gaps]


class Heard:
    """Keeps what a listener to phases and gaps is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def entered(self, slot: int) -> None:
        """A phase or gap began."""
        self.told.append(f"entered {slot}")

    def left(self) -> None:
        """The innermost one ended."""
        self.told.append("left")

    def cleared(self) -> None:
        """Whatever was open is over."""
        self.told.append("cleared")


def micro_batch_done(recorder: Recorder, *, complete: bool) -> None:
    """A forward-backward pass is over; *complete* when the optimizer was stepped in it."""
    if recorder.draft is not None:
        recorder.draft.micro_batches += 1
        recorder.draft.complete = recorder.draft.complete or complete


def phases_ms(step: Draft) -> dict[str, float]:
    """Milliseconds of the phases that took any time."""
    return {
        phase.label: spent / MS for phase, spent in zip(PHASES, step.host_ns, strict=True) if spent
    }


def assert_tiles(line: Timeline) -> None:
    """Steps and gaps add up to the fit, one after the other, and nothing is negative."""
    assert all(spent >= 0 for step in line.steps for spent in step.host_ns)
    assert all(gap.duration_ns >= 0 for gap in line.gaps)
    spent = sum(sum(step.host_ns) for step in line.steps)
    assert spent + sum(gap.duration_ns for gap in line.gaps) == line.fit_ns
    assert [step.index for step in line.steps] == list(range(len(line.steps)))

    moment = _gaps_after(line, -1)
    for step in line.steps:
        assert step.start_ns == moment, f"start of step {step.index}"
        assert len(step.host_ns) == len(PHASES)
        moment += sum(step.host_ns) + _gaps_after(line, step.index)
    assert moment == line.fit_ns
    _assert_gaps_lie_where_they_say(line)


def _gaps_after(line: Timeline, index: int) -> int:
    return sum(gap.duration_ns for gap in line.gaps if gap.after_step == index)


def _assert_gaps_lie_where_they_say(line: Timeline) -> None:
    starts = {-1: 0, **{step.index: step.start_ns for step in line.steps}}
    for gap in line.gaps:
        ends = starts.get(gap.after_step + 1, line.fit_ns)
        assert starts[gap.after_step] <= gap.start_ns
        assert gap.start_ns + gap.duration_ns <= ends


class DeviceFit:
    """A fit on a simulated device: the host goes ahead, the device comes after."""

    def __init__(
        self,
        *,
        log_every: int = 50,
        most_events: int = 4096,
        probes: Sequence[Probe] = (),
        sinks: Sequence[Sink] = (),
    ) -> None:
        self.clock = FakeClock()
        self.device = SimulatedDevice(self.clock)
        self.events = DeviceClock(self.device, most_events)
        self.marks = MarksProbe(self.events)
        self.monitor = Monitor(self.clock)
        self.sink = MemorySink()
        self.monitor.start(
            RunParts(
                info=RunInfo(device="cuda"),
                probes=[self.marks, *probes],
                sinks=[self.sink, *sinks],
                device=self.events,
                log_every=log_every,
            )
        )

    def fetch(self, ms: float = 0.0) -> None:
        """The loader takes so long to bring a batch."""
        recorder = self.monitor.recorder
        recorder.boundary()
        self.marks.mark(Mark.FETCH_BEGINS)
        recorder.enter(Phase.DATA_WAIT)
        self.clock.advance(ms=ms)
        recorder.leave()
        self.marks.mark(Mark.FETCH_ENDS)

    def compute(self, host_ms: float, device_ms: float) -> None:
        """Forward and backward: the host needs *host_ms* to queue *device_ms* of work, each."""
        recorder = self.monitor.recorder
        for phase, ends in (
            (Phase.FORWARD, Mark.FORWARD_ENDS),
            (Phase.BACKWARD, Mark.BACKWARD_ENDS),
        ):
            recorder.enter(phase)
            self.clock.advance(ms=host_ms)
            self.device.work(device_ms)
            recorder.leave()
            self.marks.mark(ends)

    def end_step(self, *, complete: bool = True, batch: object = None) -> None:
        """The micro-batch is over."""
        self.monitor.micro_batch(batch, None, complete=complete)
        self.monitor.recorder.last_hook_done()

    def step(self, *, fetch_ms: float = 0.0, host_ms: float = 0.1, device_ms: float = 0.1) -> None:
        """A whole step of one micro-batch."""
        self.fetch(fetch_ms)
        self.compute(host_ms, device_ms)
        self.end_step()

    def finish(self) -> list[StepRecord]:
        """End the fit; the steps that were written."""
        self.monitor.finish("finished")
        return self.sink.records

    def facts(self, name: str) -> list[int | float | None]:
        """One fact of all steps written so far."""
        return [record.facts[name] for record in self.sink.records]


class HostFit:
    """A fit on a CPU: a monitor on a fake clock."""

    def __init__(
        self,
        *probes: Probe,
        sinks: Sequence[Sink] = (),
        log_every: int = 50,
        tick_ns: int = 0,
        parts: RunParts | None = None,
    ) -> None:
        self.clock = FakeClock(tick_ns=tick_ns)
        self.monitor = Monitor(self.clock)
        self.sink = MemorySink()
        made = parts or RunParts(info=RunInfo())
        made.probes, made.sinks, made.log_every = probes, [self.sink, *sinks], log_every
        self.monitor.start(made)

    def steps(self, number: int, ms: float = 1.0) -> "HostFit":
        """So many equal steps."""
        for _ in range(number):
            self.monitor.recorder.boundary()
            self.monitor.recorder.enter(Phase.FORWARD)
            self.clock.advance(ms=ms)
            self.monitor.recorder.leave()
            self.monitor.micro_batch(None, None, complete=True)
            self.monitor.recorder.last_hook_done()
        return self

    def micro_batch(
        self, batch: object = None, loss: object = None, *, complete: bool = True
    ) -> "HostFit":
        """One batch, and perhaps the step's last."""
        self.monitor.recorder.boundary()
        self.monitor.micro_batch(batch, loss, complete=complete)
        self.monitor.recorder.last_hook_done()
        return self

    def finish(self, reason: str = "finished") -> "HostFit":
        """End the fit."""
        self.monitor.finish(reason)
        return self

    def facts(self, name: str) -> list[int | float | None]:
        """One fact of all steps written so far."""
        return [record.facts[name] for record in self.sink.records]

    @property
    def totals(self) -> Totals:
        """The last cumulative facts that were written."""
        return self.entries(Totals)[-1]

    def entries(self, kind: type[Entry]) -> list[Entry]:
        """All entries of a kind."""
        return [entry for entry in self.sink.all_entries if isinstance(entry, kind)]
