"""Clocks and devices whose truth is known: for our tests, and for those of your own meters.

A test lets time pass and asks for exact numbers::

    clock = FakeClock()
    recorder = Recorder(clock)
    clock.advance(ms=5)

Nothing here sleeps or waits.
"""

from trainperf.core.phases import PHASES, Phase
from trainperf.core.steps.records import StepRecord


class FakeClock:
    """A host clock that moves only when told to, in whole nanoseconds.

    With a *tick_ns* every reading takes that long, as on a real clock: it shows who reads twice
    what has to be one moment.
    """

    def __init__(self, now_ns: int = 1_000_000_000, *, tick_ns: int = 0) -> None:
        self.now_ns = now_ns
        self.tick_ns = tick_ns

    def __call__(self) -> int:
        """The time, in nanoseconds."""
        self.now_ns += self.tick_ns
        return self.now_ns

    def advance(self, *, ms: float = 0.0, ns: int = 0) -> None:
        """Let time pass."""
        self.now_ns += round(ms * 1e6) + ns

    def sleep(self, seconds: float) -> None:
        """Let time pass while somebody waits."""
        self.advance(ns=round(seconds * 1e9))

    def set(self, now_ns: int) -> None:
        """Go to a moment, e.g. of a recorded log."""
        if now_ns < self.now_ns:
            raise ValueError(f"now_ns={now_ns}: a monotonic clock is at {self.now_ns} already")
        self.now_ns = now_ns


class SimulatedEvent:
    """A timing event of a `SimulatedDevice`, with the interface of `torch.cuda.Event`."""

    def __init__(self, device: "SimulatedDevice") -> None:
        self._device = device
        self._reached_ns: int | None = None

    def record(self, stream: object = None, /) -> None:
        """Stand behind everything queued so far; there is one stream."""
        del stream
        self._device.check()
        self._reached_ns = self._device.idle_at_ns()

    def query(self) -> bool:
        """Whether the device has come here.  Never waits, and is counted."""
        self._device.check()
        self._device.queries += 1
        return self._reached_ns is not None and self._reached_ns <= self._device.clock.now_ns

    def elapsed_time(self, end_event: "SimulatedEvent", /) -> float:
        """Milliseconds to *end_event*; as on a real device an error before both are reached."""
        self._device.check()
        ends = (self._reached_ns, end_event._reached_ns)  # noqa: SLF001 the other of a pair
        if any(end is None or end > self._device.clock.now_ns for end in ends):
            raise RuntimeError("elapsed_time before the device has reached both events")
        return ((ends[1] or 0) - (ends[0] or 0)) / 1e6

    def synchronize(self) -> None:
        """Wait for the device: moves the clock, and is counted as a synchronisation."""
        self._device.check()
        self._device.synchronizations += 1
        if self._reached_ns is not None:
            self._device.clock.now_ns = max(self._device.clock.now_ns, self._reached_ns)


class SimulatedDevice:
    """An asynchronous queue: the host runs ahead, events complete later, reads are counted."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self._last_end_ns = clock.now_ns
        self.queries = 0
        """Polls: free of charge on a real device, but worth knowing."""
        self.synchronizations = 0
        """Times somebody waited for the device."""
        self.broken = False
        """Whether every further use of the device fails, as after a device-side assertion."""

    def check(self) -> None:
        """Raise if the device is broken."""
        if self.broken:
            raise RuntimeError("the device is broken: every call to it fails")

    def work(self, ms: float) -> None:
        """Queue work that takes the device *ms*; the host goes on at once."""
        start = self.idle_at_ns()
        self._last_end_ns = start + round(ms * 1e6)

    def idle_at_ns(self) -> int:
        """When everything queued so far will be done (now, if it is)."""
        return max(self._last_end_ns, self.clock.now_ns)

    def event(self) -> SimulatedEvent:
        """A new timing event."""
        return SimulatedEvent(self)

    def current_stream(self) -> str:
        """The only one."""
        return "stream"

    def is_capturing(self) -> bool:
        """Never."""
        return False

    def synchronize(self) -> None:
        """Wait for everything queued so far; counted."""
        self.check()
        self.synchronizations += 1
        self.clock.now_ns = self.idle_at_ns()


def make_record(
    *,
    index: int = 0,
    wall_s: float = 0.01,
    tags: int = 0,
    micro_batches: int = 1,
    facts: dict[str, int | float | None] | None = None,
    phases_s: dict[Phase, float] | None = None,
) -> StepRecord:
    """A step of a known length.  What *phases_s* leaves of *wall_s* is `other`."""
    spent = {phase: round((phases_s or {}).get(phase, 0.0) * 1e9) for phase in PHASES}
    rest = round(wall_s * 1e9) - sum(spent.values())
    if rest < 0:
        raise ValueError(f"phases_s: they add up to more than wall_s={wall_s}")
    spent[Phase.OTHER] += rest
    return StepRecord(
        index=index,
        start_ns=0,
        tags=tags,
        micro_batches=micro_batches,
        host_ns=tuple(spent[phase] for phase in PHASES),
        facts=facts or {},
    )
