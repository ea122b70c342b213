"""Contents of `machine-rank0.jsonl`: the machine beside the loop, sampled by a process of its own.

Line 1 is a `MachineHeader`; then a line per sample, numbers in the order of its columns, and now
and then a `Neighbour`.  Times are the training process's: nanoseconds since the start of its fit,
on the monotonic clock that both have.  `None` is *not measured*.  Older files have further columns,
and end with a `MachineEnd`.
"""

import msgspec


MACHINE_VERSION = 1

HOST_COLUMNS: dict[str, str] = {
    "cpu_busy": "CPUs of the host that were busy, mean since the sample before",
    "cpu_own": "of them by this training: its processes, their children, and this sampler",
    "cpu_stolen": "CPUs that the host of a virtual machine gave to others",
    "waited": "share of the time in which the training thread was ready to run and had no CPU",
    "cpu_pressure": "share of the time in which some task waited for a CPU (PSI)",
    "memory_pressure": "share of the time in which some task waited for memory (PSI)",
    "io_pressure": "share of the time in which some task waited for a disk (PSI)",
    "memory_free": "memory of the host that can be had without swapping, bytes",
    "swapped": "bytes per second to and from the swap space",
    "disk_read": "bytes per second",
    "disk_written": "bytes per second",
}
"""Column to what it is, in the order of a line."""

DEVICE_COLUMNS: dict[str, str] = {
    "sm_mhz": "clock of the multiprocessors",
    "power_w": "power of the board",
    "celsius": "temperature of the chip",
    "reasons": "bits: why the clock is lower than it could be, as NVML has them",
    "busy": "share of the time in which a kernel ran",
    "others": "processes on the device that are not this training's",
    "others_busy": "share of the multiprocessors' time that those took",
}
"""The same of a device; in a file each is `gpu0.sm_mhz`, … by the place of the device."""

THERMAL_BITS = 0x20 | 0x40 | 0x08
"""`SwThermalSlowdown`, `HwThermalSlowdown`, and `HwSlowdown`, which older drivers set alone."""
POWER_BRAKE_BIT = 0x80
"""`HwPowerBrakeSlowdown`: the power supply asks for it."""


class SampledDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that is sampled."""

    name: str
    uuid: str = ""
    most_mhz: float | None = None
    """Highest clock of its multiprocessors."""
    limit_w: float | None = None
    """Its power limit when the fit began."""
    nvlinks: int = 0
    """Links of NVLink that are active; none where the driver tells of none."""


class SampledHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is sampled."""

    rank: int = 0
    """The first rank of this host: the others have no file."""
    host: str = ""
    """Its name."""
    cpus: int | None = None
    reasons: dict[str, str] = {}
    """What could not be sampled, and why."""


class MachineHeader(SampledHost, frozen=True, kw_only=True, tag_field="kind", tag="machine"):
    """Who sampled what."""

    schema: int = MACHINE_VERSION
    attempt: int = 0
    every_s: float = 1.0
    """Between two samples, where nothing makes them dearer."""
    columns: tuple[str, ...] = ("at_ns",)
    devices: tuple[SampledDevice, ...] = ()


class Neighbour(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="process"):
    """A process that is not this training's and kept CPUs, or a device, busy."""

    at_ns: int
    pid: int
    name: str
    cpus: float = 0.0
    """That it kept busy since it was last looked at."""
    device: int | None = None
    """Place of the device it is on; `None` for one that is on the CPUs."""
    memory_bytes: int | None = None
    """That it holds there."""


class MachineEnd(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    """The sampler ended with the fit: the last line of older files."""


def device_column(device: int, name: str) -> str:
    """Name of a device's column in a file."""
    return f"gpu{device}.{name}"
