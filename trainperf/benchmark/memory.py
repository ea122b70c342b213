"""Peak memory of one call.

On CUDA it is the allocator's own peak, exact.  On a CPU it is the resident set of the process,
sampled every millisecond from another thread: a peak between two samples is missed, so a call with
too few samples has no peak but a reason.
"""

import threading
from collections.abc import Callable

import psutil
import torch

from trainperf.benchmark.results import PeakMemory
from trainperf.core.formatting.units import plural


LEAST_SAMPLES = 5
"""Fewer samples of the resident set during a call are no measurement of its peak."""

_PAUSE_S = 0.001


def peak_memory(call: Callable[[], object]) -> PeakMemory:
    """Peak memory during one call, of the current device.

    Resets CUDA's peak statistics.  Calls twice where the call does not use the device.
    """
    if torch.cuda.is_available():
        memory = _allocated(call)
        if memory.peak_bytes:
            return memory
    # No CUDA memory at all: the call runs on the host, although there is a device.
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
    sampler = _Sampler()
    before = sampler.resident()
    sampler.start()
    try:
        call()
    finally:
        sampler.stop()
    if sampler.samples < LEAST_SAMPLES:
        reason = (
            f"the resident set was sampled {plural(sampler.samples, 'time')} during the call, "
            f"fewer than {LEAST_SAMPLES}: the call is too short"
        )
        return PeakMemory(source="resident set", reason=reason)
    above = max(0, sampler.peak - before)
    return PeakMemory(source="resident set", peak_bytes=sampler.peak, above_start_bytes=above)


class _Sampler:
    """Samples this process's resident set until stopped."""

    def __init__(self) -> None:
        self.samples = 0
        self.peak = 0
        self._process = psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trainperf-memory", daemon=True)

    def resident(self) -> int:
        """The resident set now, in bytes."""
        return int(self._process.memory_info().rss)

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling; returns after the last sample."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.is_set():
            self.peak = max(self.peak, self.resident())
            self.samples += 1
            self._over.wait(_PAUSE_S)
