"""A recorder on a clock that stands still, and what its steps and gaps add up to."""

from dataclasses import dataclass, field

from trainperf.phases import PHASES, Phase
from trainperf.recorder import Draft, Recorder
from trainperf.records import GapRecord
from trainperf.testing import FakeClock


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
        self.recorder.micro_batch_done(complete=complete)
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
