"""Start and end of the process that samples the machine beside a fit: one per host.

The loop runs none of it: the process is started before the first step and ended after the last,
and nothing in between looks at it.
"""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import torch

from trainperf.accelerators import accelerator_of
from trainperf.core.interleaving import directory
from trainperf.core.machine.limits import launched_ranks
from trainperf.core.run_directory import PART_BYTES, attempt, machine_file
from trainperf.recording.child_process import end_child, start_child
from trainperf.recording.probes.base import Probe


SAMPLER = "trainperf.recording.machine.process"
"""The module that the process runs."""
EVERY_S = 1.0
"""Between two samples."""
VARIABLE = "TRAINPERF_MACHINE"
"""Set to `0` nothing is sampled, whatever the script says."""

_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")


class MachineProbe(Probe):
    """Has the machine sampled while the fit runs, into a file in its run directory.

    Args:
        run: The run directory.
        rank: This rank, the first of its host.
        devices: Which devices, as `DeviceSource` takes them.
        every_s: Seconds between two samples.
    """

    name: ClassVar[str] = "machine"

    def __init__(
        self, run: Path, rank: int, devices: Sequence[str] = (), every_s: float = EVERY_S
    ) -> None:
        self._file = machine_file(run, rank, attempt())
        self._rank, self._devices, self._every_s = rank, devices, every_s

    def begin(self) -> None:
        """Start the process.

        Raises:
            OSError: There is no process, or no memory for it.
        """
        given = {
            "file": str(self._file.resolve()),
            "parent": os.getpid(),
            "thread": threading.get_native_id(),
            "zero_ns": self.recorder.zero_ns,
            "rank": self._rank,
            "attempt": attempt(),
            "every_s": self._every_s,
            "most": PART_BYTES,
            "devices": list(self._devices),
            "several": (launched_ranks() or 1) > 1,
        }
        self.child = start_child(SAMPLER, msgspec.json.encode(given).decode())
        self.undo.callback(end_child, self.child)  # also one that is stopped


def machine_probe(run: Path | None, rank: int, device: torch.device) -> list[Probe]:
    """The probe; none where nothing is written, or nobody wants it.

    A training that takes turns with another is not sampled either: the other is no neighbour.
    """
    off = os.environ.get(VARIABLE, "") == "0"
    if run is None or off or directory() is not None:
        return []
    return [MachineProbe(run, rank, devices_of(device))]


def devices_of(device: torch.device) -> list[str]:
    """UUIDs of the devices of this host's ranks: of several ranks all that are visible."""
    if device.type == "cpu":  # to count others may keep them from forks
        return []
    several = (launched_ranks() or 1) > 1
    places = range(torch.accelerator.device_count()) if several else [device.index or 0]
    each = (accelerator_of(torch.device(device.type, place)).features().uuid for place in places)
    return [uuid for uuid in each if uuid]


def is_first_of_host(rank: int) -> bool:
    """As the launcher says; where none does, the first rank of all stands for its host."""
    local = next((os.environ[name] for name in _LOCAL_RANKS if os.environ.get(name)), None)
    return rank == 0 if local is None else local == "0"
