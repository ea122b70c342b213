"""Machines beside planted runs: sampled files as the sampling process writes them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from trainperf.core.artifacts.machine import (
    DEVICE_COLUMNS,
    HOST_COLUMNS,
    MachineHeader,
    Neighbour,
    SampledDevice,
    device_column,
)
from trainperf.core.run_directory import machine_file


S = 1_000_000_000
H200 = SampledDevice(name="NVIDIA H200", uuid="GPU-1", most_mhz=1980, limit_w=700)

QUIET: Mapping[str, float | None] = {
    "cpu_busy": 2.1,
    "cpu_own": 2.0,
    "cpu_stolen": 0.0,
    "waited": 0.002,
    "cpu_pressure": 0.01,
    "memory_pressure": 0.0,
    "io_pressure": 0.01,
    "memory_free": 200e9,
    "swapped": 0.0,
    "disk_read": 1e6,
    "disk_written": 2e5,
}
"""A host that does nothing else, second by second."""

COOL: Mapping[str, float | None] = {
    "sm_mhz": 1980,
    "power_w": 600,
    "celsius": 60,
    "reasons": 0x04,
    "busy": 0.98,
    "others": 0,
    "others_busy": 0.0,
}
"""A device at its power limit, as a large model makes it."""

Change = Callable[[int], Mapping[str, float | None]]
"""From the second to what is different then."""


def nothing(_: int) -> Mapping[str, float | None]:
    """A healthy machine."""
    return {}


def plant_machine(  # noqa: PLR0913 a second is what these say
    run: Path,
    seconds: int,
    *,
    host: Change = nothing,
    device: Change = nothing,
    devices: Sequence[SampledDevice] = (H200,),
    neighbours: Sequence[Neighbour] = (),
    rank: int = 0,
    attempt: int = 0,
    name: str = "node0",
) -> Path:
    """Write a file of one sample per second, from the fit's start on."""
    columns = ("at_ns", *HOST_COLUMNS)
    for place in range(len(devices)):
        columns += tuple(device_column(place, each) for each in DEVICE_COLUMNS)
    header = MachineHeader(
        rank=rank, attempt=attempt, host=name, columns=columns, devices=tuple(devices), cpus=16
    )
    lines: list[object] = [header]
    for second in range(seconds + 1):
        of_host = {**QUIET, **host(second)}
        row = [second * S, *(of_host[name] for name in HOST_COLUMNS)]
        for _ in devices:
            of_device = {**COOL, **device(second)}
            row += [of_device[name] for name in DEVICE_COLUMNS]
        lines.append(row)
        lines += [each for each in neighbours if each.at_ns == second * S]
    run.mkdir(parents=True, exist_ok=True)
    path = machine_file(run, rank, attempt)
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path
