"""How much memory did this call need at most?

On CUDA the allocator's own peak, exact.  On a CPU the resident set of the process, looked at every
millisecond from another thread: a peak between two looks is missed, so a call that was seen too
seldom has no peak but a reason.
"""

import threading
from collections.abc import Callable

import psutil
import torch

from trainperf.benchmark.results import PeakMemory
from trainperf.core.formatting.units import plural


LEAST_LOOKS = 5
"""Fewer looks at the resident set during a call are no measurement of its peak."""

_PAUSE_S = 0.001


def peak_memory(call: Callable[[], object]) -> PeakMemory:
    """Peak memory during one call, of the current device.

    Resets CUDA's peak statistics.  A second call is made where a device is there but nothing on it.
    """
    if torch.cuda.is_available():
        memory = _allocated(call)
        if memory.peak_bytes:
            return memory
    # No CUDA memory at all: the call works on the host, though there is a device.
    return _resident(call)


def _allocated(call: Callable[[], object]) -> PeakMemory:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    return PeakMemory(source="CUDA allocator", peak_bytes=peak, above_start_bytes=peak - before)


def _resident(call: Callable[[], object]) -> PeakMemory:
    watcher = _Watcher()
    before = watcher.resident()
    watcher.start()
    try:
        call()
    finally:
        watcher.stop()
    if watcher.looks < LEAST_LOOKS:
        reason = (
            f"the resident set was seen {plural(watcher.looks, 'time')} during the call, fewer "
            f"than {LEAST_LOOKS}: the call is too short"
        )
        return PeakMemory(source="resident set", reason=reason)
    above = max(0, watcher.peak - before)
    return PeakMemory(source="resident set", peak_bytes=watcher.peak, above_start_bytes=above)


class _Watcher:
    """Looks at this process's resident set until told to stop."""

    def __init__(self) -> None:
        self.looks = 0
        self.peak = 0
        self._process = psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trainperf-memory", daemon=True)

    def resident(self) -> int:
        """The resident set now, in bytes."""
        return int(self._process.memory_info().rss)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; returns when the last look is over."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.is_set():
            self.peak = max(self.peak, self.resident())
            self.looks += 1
            self._over.wait(_PAUSE_S)
