"""The host's clocks."""

import time
from datetime import datetime, timezone


monotonic_ns = time.perf_counter_ns
"""The host clock of every measurement: monotonic, nanoseconds, arbitrary zero."""


thread_ns = time.thread_time_ns
"""Time that the calling thread has computed: not while it sleeps, nor while others run."""


def wall_clock_anchor() -> str:
    """The run's only use of wall-clock time: when it began, ISO 8601 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
