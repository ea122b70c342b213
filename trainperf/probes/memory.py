"""Feeds memory: what the device's allocator holds, or the process's resident set on a CPU."""

from typing import ClassVar

import psutil
import torch

from trainperf.probes.base import Probe
from trainperf.recorder import Draft, Recorder


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

    def sample(self, draft: Draft) -> None:
        """Read what is held now."""
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

    def sample(self, draft: Draft) -> None:
        """Read what is held now."""
        draft.facts[self._column] = self._process.memory_info().rss
