"""Clock of an asynchronous device: timing events, polled, never waited for.

Events of one stream complete in the order they were recorded; those of two streams in any.
"""

from collections import deque
from typing import Any, Protocol

from trainperf.core.machine.clocks import TimingEvent


MOST_EVENTS = 4096
"""Events kept for reuse or in flight; beyond that a mark is given up, and counted."""


class DeviceQueue(Protocol):
    """What is asked of a device here: an `Accelerator`, or what simulates one."""

    def event(self) -> TimingEvent:
        """A new event with a time."""

    def current_stream(self) -> Any:  # noqa: ANN401 each backend's own
        """The stream that this thread puts its work on; can be a key."""

    def is_capturing(self) -> bool:
        """Whether that is being captured into a graph: no event may be used then."""


class DeviceClock:
    """A pool of timing events and the knowledge which of them the device has reached."""

    def __init__(self, device: DeviceQueue, most: int = MOST_EVENTS) -> None:
        self.device = device
        self._most = most
        self._created = 0
        self._free: list[TimingEvent] = []
        self._ahead: dict[Any, deque[TimingEvent]] = {}
        """By stream, those that the device may not have reached, oldest first."""
        self.dropped = 0
        """Marks given up because every event was in flight."""

    def mark(self) -> TimingEvent | None:
        """Record an event now, on this thread's stream.  Runs several times every step.

        Returns `None`, and counts it, when all events are in flight.  Not inside a capture, in
        which no event may be recorded or asked.
        """
        if not self._free and self._created >= self._most:
            self.dropped += 1
            return None
        return self._record(self.device.current_stream())

    @property
    def crowded(self) -> bool:
        """Whether a quarter of the pool is in use: time to write a group and get events back."""
        return self._created - len(self._free) > self._most // 4

    def fences(self) -> list[TimingEvent]:
        """Events that are never given up, on this thread's stream and on each that holds marks.

        The first is on this thread's; together they are a group's end.
        """
        self._ahead = {stream: ahead for stream, ahead in self._ahead.items() if ahead}
        streams = dict.fromkeys((self.device.current_stream(), *self._ahead))
        return [self._record(stream) for stream in streams]

    def lead(self) -> int:
        """How many marks the device has not reached yet.  Runs twice every step.

        Not inside a capture.
        """
        for ahead in self._ahead.values():
            while ahead and ahead[0].query():
                ahead.popleft()
        return sum(map(len, self._ahead.values()))

    def release(self, events: list[TimingEvent]) -> None:
        """Give reached events back to the pool."""
        self.lead()
        self._free.extend(events)

    def _record(self, stream: Any) -> TimingEvent:  # noqa: ANN401 each backend's own
        if self._free:
            event = self._free.pop()
        else:
            event = self.device.event()
            self._created += 1
        event.record(stream)
        self._ahead.setdefault(stream, deque()).append(event)
        return event
