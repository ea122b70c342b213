"""The clocks: the host's, and the events of a device.  Nothing else in the package reads time."""

import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Protocol

from typing_extensions import Self


HostClock = Callable[[], int]
"""Returns nanoseconds on a monotonic clock with an arbitrary zero."""

monotonic_ns = time.perf_counter_ns
"""The host clock of every measurement: monotonic, nanoseconds, arbitrary zero."""

thread_ns = time.thread_time_ns
"""CPU time of the calling thread: not while it sleeps, nor while others run."""

process_ns = time.process_time_ns
"""CPU time of all threads of this process."""


def wall_clock_anchor() -> str:
    """The run's only use of wall-clock time: when it began, ISO 8601 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


class TimingEvent(Protocol):
    """A point in a device's queue, as `torch.cuda.Event(enable_timing=True)` is one."""

    def record(self, stream: Any = None, /) -> None:  # noqa: ANN401 each backend's own
        """Put the event behind everything queued so far on *stream*.

        Without one that is the current stream of the *current* device, which may be another's.
        """

    def query(self) -> bool:
        """Whether the device has reached it.  Never waits."""

    def elapsed_time(self, end_event: Self, /) -> float:
        """Milliseconds of device time to *end_event*; both must have been reached."""

    def synchronize(self) -> None:
        """Wait until the device has reached it.  Only the drain at the end of fit may."""
