"""Feeds memory: what the device's allocator holds, or the process's resident set on a CPU."""

from typing import ClassVar

import psutil
import torch

from trainperf.probes.base import Probe
from trainperf.recorder import Draft, Recorder


EVERY_NS = 250_000_000
"""Least time between two samples: reading the allocator's statistics costs some 50 µs."""


class DeviceMemoryProbe(Probe):
    """The CUDA caching allocator after a step, sampled.  Peaks are read, never reset."""

    name = "memory"
    facts: ClassVar[tuple[str, ...]] = (
        "allocated_bytes",
        "reserved_bytes",
        "peak_bytes",
        "reserved_peak_bytes",
    )
    _KEYS = (
        "allocated_bytes.all.current",
        "reserved_bytes.all.current",
        "allocated_bytes.all.peak",
        "reserved_bytes.all.peak",
    )

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def attach(self, recorder: Recorder) -> None:
        """Begin to sample."""
        super().attach(recorder)
        self._columns = [recorder.column(name) for name in self.facts]
        self._next_ns = 0

    def finishing(self) -> None:
        """The last step is always sampled."""
        self._next_ns = 0

    def close(self, draft: Draft) -> None:
        """Sample if the last sample is old enough.  Runs every step."""
        if draft.start_ns < self._next_ns:
            return
        self._next_ns = draft.start_ns + EVERY_NS
        stats = torch.cuda.memory_stats(self._device)
        for column, key in zip(self._columns, self._KEYS, strict=True):
            draft.facts[column] = stats.get(key, 0)


class ResidentMemoryProbe(Probe):
    """The resident set of this process after a step, sampled; workers are not in it."""

    name = "memory"
    facts: ClassVar[tuple[str, ...]] = ("resident_bytes",)

    def attach(self, recorder: Recorder) -> None:
        """Begin to sample."""
        super().attach(recorder)
        self._column = recorder.column("resident_bytes")
        self._process = psutil.Process()
        self._next_ns = 0

    def finishing(self) -> None:
        """The last step is always sampled."""
        self._next_ns = 0

    def close(self, draft: Draft) -> None:
        """Sample if the last sample is old enough.  Runs every step."""
        if draft.start_ns < self._next_ns:
            return
        self._next_ns = draft.start_ns + EVERY_NS
        draft.facts[self._column] = self._process.memory_info().rss
