"""Clock of an asynchronous device: timing events, polled, never waited for.

Every event is recorded on the current stream, so they complete in the order they were made.
"""

from collections import deque

from trainperf.core.machine.clocks import EventFactory, TimingEvent


MOST_EVENTS = 4096
"""Events kept for reuse or in flight; beyond that a mark is given up, and counted."""


class DeviceClock:
    """A pool of timing events and the knowledge which of them the device has reached."""

    def __init__(self, make_event: EventFactory, most: int = MOST_EVENTS) -> None:
        self._make = make_event
        self._most = most
        self._created = 0
        self._free: list[TimingEvent] = []
        self._ahead: deque[TimingEvent] = deque()
        self.dropped = 0
        """Marks given up because every event was in flight."""

    def mark(self) -> TimingEvent | None:
        """Record an event now.  Runs several times every step.

        Returns `None`, and counts it, when all events are in flight.
        """
        if self._free:
            event = self._free.pop()
        elif self._created < self._most:
            event = self._make()
            self._created += 1
        else:
            self.dropped += 1
            return None
        event.record()
        self._ahead.append(event)
        return event

    @property
    def crowded(self) -> bool:
        """Whether a quarter of the pool is in use: time to write a group and get events back."""
        return self._created - len(self._free) > self._most // 4

    def fence(self) -> TimingEvent:
        """Record an event that is never given up: one a group, whose passing is waited for."""
        event = self._free.pop() if self._free else self._make()
        event.record()
        self._ahead.append(event)
        return event

    def lead(self) -> int:
        """How many marks the device has not reached yet.  Runs twice every step."""
        ahead = self._ahead
        while ahead and ahead[0].query():
            ahead.popleft()
        return len(ahead)

    def elapsed_ns(self, start: TimingEvent, end: TimingEvent) -> int:
        """Device time between two marks that were reached."""
        return round(start.elapsed_time(end) * 1e6)

    def release(self, events: list[TimingEvent]) -> None:
        """Give reached events back to the pool."""
        self.lead()
        self._free.extend(events)
