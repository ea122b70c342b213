"""Feeds how long the training thread waited for a processor.

Other processes take a core for milliseconds at a time, and the steps alone do not tell that from a
change of the code.  Linux counts for every thread how long it was ready to run and did not; it is
read as often as costs 0.1 % of the time.
"""

import os
from pathlib import Path
from typing import ClassVar

from trainperf.recording.probes.base import Probe, add
from trainperf.recording.recorder import Draft, Recorder


INTERRUPTED = 4
"""A reading so many times as long as the shortest says nothing about the cost of the next."""

WAITS = Path("/proc/thread-self/schedstat")
"""Of the thread that opens it: nanoseconds that it ran, and that it waited for a processor."""


class ProcessorWaitProbe(Probe):
    """Reads how long the training thread has waited for a processor since the reading before.

    Args:
        waits: What the kernel says of the thread; opened by the one that attaches this probe.
    """

    name = "processor wait"
    facts: ClassVar[tuple[str, ...]] = ("waited_ns",)
    interrupted: ClassVar[float] = INTERRUPTED

    def __init__(self, waits: Path = WAITS) -> None:
        self._waits = waits
        self._before_ns: int | None = None

    def attach(self, recorder: Recorder) -> None:
        """Begin with the first step."""
        super().attach(recorder)
        self._file = os.open(self._waits, os.O_RDONLY)

    def detach(self) -> None:
        """Close the file."""
        os.close(self._file)

    def sample(self, draft: Draft) -> None:
        """Read on; the first reading is what the next begins with."""
        waited_ns = int(os.pread(self._file, 64, 0).split()[1])
        if self._before_ns is not None:
            add(draft, "waited_ns", waited_ns - self._before_ns)
        self._before_ns = waited_ns
