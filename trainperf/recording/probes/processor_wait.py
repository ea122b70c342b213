"""Feeds how long the training thread waited for a processor.

Other processes take a core for milliseconds at a time, and the steps alone do not tell that from a
change of the code.  Linux counts for every thread how long it was ready to run and did not; it is
read as often as costs 0.1 % of the time.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from trainperf.recording.probes.base import SampledProbe


WAITS = Path("/proc/thread-self/schedstat")
"""Of the thread that opens it: nanoseconds that it ran, and that it waited for a processor."""


class ProcessorWaitProbe(SampledProbe):
    """Reads how long the training thread has waited for a processor since the reading before.

    Args:
        waits: What the kernel says of the thread; opened by the one that attaches this probe.
    """

    name = "processor wait"
    facts: ClassVar[tuple[str, ...]] = ("waited_ns",)
    counted: ClassVar[tuple[str, ...]] = facts
    interrupted: ClassVar[float] = 4

    def __init__(self, waits: Path = WAITS) -> None:
        self._waits = waits

    def begin(self) -> None:
        """Open the file, until the fit is over."""
        self._file = os.open(self._waits, os.O_RDONLY)
        self.undo.callback(os.close, self._file)
        super().begin()

    def read(self) -> Mapping[str, int]:
        """For how long, since the thread began."""
        return {"waited_ns": int(os.pread(self._file, 64, 0).split()[1])}
