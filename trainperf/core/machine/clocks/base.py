"""What a clock has to offer, so that tests can supply their own."""

from collections.abc import Callable
from typing import Protocol

from typing_extensions import Self


HostClock = Callable[[], int]
"""Returns nanoseconds on a monotonic clock with an arbitrary zero."""


class TimingEvent(Protocol):
    """A point in a device's queue, as `torch.cuda.Event(enable_timing=True)` is one."""

    def record(self) -> None:
        """Put the event behind everything queued so far on the current stream."""
        ...

    def query(self) -> bool:
        """Whether the device has reached it.  Never waits."""
        ...

    def elapsed_time(self, end_event: Self, /) -> float:
        """Milliseconds of device time to *end_event*; both must have been reached."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has reached it.  Only the drain at the end of fit may."""
        ...


EventFactory = Callable[[], TimingEvent]
