"""The device that computes the step: its name, and the size of its last-level cache."""

import platform
from collections.abc import Iterable
from pathlib import Path

import torch


_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def device_name(kind: str) -> str:
    """As the driver or the operating system calls it; what the table of chips is asked for."""
    if kind == "cuda":
        return torch.cuda.get_device_name()
    return cpu_name() if kind == "cpu" else kind


def cache_bytes(kind: str) -> int | None:
    """The device's last-level cache, on a CPU with the caches before it; `None` if not known."""
    if kind == "cuda":
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
    return cpu_cache_bytes(_CPUS) if kind == "cpu" else None


def computing(kinds: Iterable[str]) -> str:
    """Of the device types that a step used, the one that computed: an accelerator before a CPU."""
    others = sorted(set(kinds) - {"cpu"})
    return others[0] if others else "cpu"


def cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model, with its architecture where the system does not say."""
    lines = info.read_text().splitlines() if info.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def cpu_cache_bytes(cpus: Path) -> int | None:
    """Caches of the second level and above, each counted once however many cores share it."""
    sizes: dict[tuple[str, str], int] = {}
    for cache in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        level, shared, size = (_line(cache / f) for f in ("level", "shared_cpu_list", "size"))
        if level.isdigit() and int(level) >= 2 and size[:-1].isdigit():
            sizes[level, shared] = int(size[:-1]) * _UNITS.get(size[-1], 1)
    return sum(sizes.values()) or None


def _line(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""
