"""Feeds memory: what the device's allocator holds, or the process's resident set on a CPU."""

import ctypes
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import psutil

from trainperf.accelerators import Ability, Accelerator
from trainperf.core.machine.limits import text_of
from trainperf.core.readings import MEMORY_SLOPE_BYTES_PER_STEP
from trainperf.recording.probes.base import SampledProbe


class DeviceMemoryProbe(SampledProbe):
    """The device's caching allocator after a step, sampled.  Peaks are read, never reset.

    A counter that it does not keep is not fed.
    """

    name = "memory"
    _READ: ClassVar[Mapping[str, str]] = {
        "allocated_bytes": "allocated_bytes.all.current",
        "reserved_bytes": "reserved_bytes.all.current",
        "peak_bytes": "allocated_bytes.all.peak",
        "reserved_peak_bytes": "reserved_bytes.all.peak",
    }
    counted: ClassVar[Mapping[str, str]] = {
        "alloc_retries": "num_alloc_retries",
        "alloc_failures": "num_ooms",
        "device_allocs": "num_device_alloc",
    }
    facts: ClassVar[tuple[str, ...]] = (*_READ, *counted)

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        lacking = Ability.RETRIES in accelerator.lacks()
        self._keys = {**self._READ, **({} if lacking else self.counted)}

    def read(self) -> Mapping[str, int]:
        """What is held now, and what was counted so far."""
        stats = self._accelerator.memory_stats()
        return {
            fact: stats.get(key, 0)
            for fact, key in self._keys.items()
            if key in stats or not stats  # none at all: nothing was allocated yet
        }


class DeviceUseProbe(SampledProbe):
    """Memory of the device in use after a step, whoever holds it; sampled.

    Other processes, libraries and the driver hold some beside torch.  A driver that moves pages to
    the host refuses none, so this is what tells that the device is full.
    """

    name = "memory in use"
    facts: ClassVar[tuple[str, ...]] = ("device_used_bytes",)

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def read(self) -> Mapping[str, int]:
        """What is in use now, where the device tells."""
        sizes = None if self._accelerator.is_capturing() else self._accelerator.memory_bytes()
        return {} if sizes is None else {"device_used_bytes": sizes[1] - sizes[0]}


class ResidentMemoryProbe(SampledProbe):
    """The resident set of this process after a step, and what of it is in use; sampled.

    In use is what the C allocator has handed out and what is shared with workers, where glibc
    tells; else the resident set without mapped files, which are the kernel's to drop.  Workers
    are not in it, nor are Python's own small objects where glibc tells.
    """

    name = "memory"
    facts: ClassVar[tuple[str, ...]] = ("resident_bytes", "owned_bytes")

    def begin(self) -> None:
        """See who tells what is in use."""
        self._in_use, self._process = heap(), psutil.Process()
        super().begin()

    def read(self) -> Mapping[str, int]:
        """What is held now."""
        parts = status_bytes()
        if not parts:
            return {"resident_bytes": self._process.memory_info().rss}
        private = parts[ANONYMOUS] if self._in_use is None else self._in_use()
        return {"resident_bytes": sum(parts.values()), "owned_bytes": private + parts[SHARED]}

    def reasons(self) -> dict[str, str]:
        """Only Linux tells mapped files from the rest."""
        why = "not measured: only Linux tells what a process holds apart from mapped files"
        return {} if _STATUS.is_file() else {MEMORY_SLOPE_BYTES_PER_STEP: why}


_STATUS = Path("/proc/self/status")
_SIZES = re.compile(r"^Rss(Anon|Shmem|File):\s+(\d+) kB$", re.MULTILINE)


ANONYMOUS, SHARED, MAPPED = "Anon", "Shmem", "File"
"""Parts of the resident set: shared are e.g. batches from workers, mapped are pages of files."""


def status_bytes(status: Path = _STATUS) -> dict[str, int]:
    """Bytes of each part of this process's resident set; empty where they are not all told."""
    parts = {part: int(kibibytes) * 1024 for part, kibibytes in _SIZES.findall(text_of(status))}
    return parts if parts.keys() == {ANONYMOUS, SHARED, MAPPED} else {}


_PROBE_BYTES = 8 << 20
"""An allocation that must show, or another allocator is at work."""


def heap() -> Callable[[], int] | None:
    """Tells the bytes that the process's C allocator has handed out, as glibc counts them.

    The resident set cannot tell: what was freed stays in it, and what is allocated next goes there.
    `None` where nothing tells, or not the truth.
    """
    ask = getattr(psutil, "heap_info", None)  # another C library has none
    # An older glibc counts in 32 bits.
    if ask is None or sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"):
        return None

    def in_use() -> int:
        info = ask()
        return int(info.heap_used + info.mmap_used)

    before = in_use()
    held = bytearray(_PROBE_BYTES)
    return in_use if in_use() - before >= len(held) else None
