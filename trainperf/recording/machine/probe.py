"""Start and end of the process that samples the machine beside a fit: one per host.

The loop runs none of it: the process is started before the first step and ended after the last,
and nothing in between looks at it.
"""

import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import torch

from trainperf.core.interleaving import directory
from trainperf.core.machine.limits import launched_ranks
from trainperf.core.rotation import rotation_bytes
from trainperf.core.run_directory import attempt, machine_file
from trainperf.recording.child_process import start_child
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Recorder


SAMPLER = "trainperf.recording.machine.process"
"""The module that the process runs."""
EVERY_S = 1.0
"""Between two samples."""
SHORT_NS = 2_000_000_000
"""A shorter fit has no samples to wait for."""
PATIENCE_S = 1.0
"""Longest wait for the last sample."""
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
        self.child: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()
        self._began_ns = 0

    def attach(self, recorder: Recorder) -> None:
        """Start the process.

        Raises:
            ConfigError: `TRAINPERF_ROTATE` holds no size.
            OSError: There is no process, or no memory for it.
        """
        super().attach(recorder)
        self._began_ns = recorder.now_ns()
        several = ["--several"] if (launched_ranks() or 1) > 1 else []
        self.child = start_child(
            SAMPLER,
            str(self._file.resolve()),
            *("--parent", str(os.getpid()), "--thread", str(threading.get_native_id())),
            *("--zero-ns", str(recorder.zero_ns), "--rank", str(self._rank)),
            *("--attempt", str(attempt()), "--every-s", str(self._every_s)),
            *("--most", str(rotation_bytes(self._file.parent))),
            *(part for device in self._devices for part in ("--device", device)),
            *several,
            stdin=subprocess.PIPE,
        )

    def detach(self) -> None:
        """End the process: it takes a last sample if it is quick about it."""
        child, self.child = self.child, None
        if child is None or os.getpid() != self._pid:  # a forked child has inherited us
            return
        if self.recorder.now_ns() - self._began_ns >= SHORT_NS:
            with suppress(OSError, subprocess.TimeoutExpired):
                child.communicate(b"end\n", timeout=PATIENCE_S)
        if child.poll() is None:
            child.kill()  # one that is stopped ends, too
            child.wait()
        if child.stdin is not None:
            with suppress(OSError):
                child.stdin.close()


def machine_probe(run: Path | None, rank: int, device: torch.device) -> list[Probe]:
    """The probe; none where nothing is written, or nobody wants it.

    A training that takes turns with another is not sampled either: the other is no neighbour.
    """
    off = os.environ.get(VARIABLE, "") == "0"
    if run is None or off or directory() is not None:
        return []
    return [MachineProbe(run, rank, devices_of(device))]


def devices_of(device: torch.device) -> list[str]:
    """The devices of this host's ranks: UUIDs where torch knows, else numbers of `nvidia-smi`."""
    if device.type != "cuda":
        return []
    if (launched_ranks() or 1) == 1:
        uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
        if uuid is not None:
            return [f"GPU-{uuid}"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else map(str, range(torch.cuda.device_count()))
    every = [name.strip() for name in names if name.strip()]
    ranks = launched_ranks() or 1
    return [every[device.index or 0]] if ranks == 1 and len(every) > (device.index or 0) else every


def is_first_of_host(rank: int) -> bool:
    """As the launcher says; where none does, the first rank of all stands for its host."""
    local = next((os.environ[name] for name in _LOCAL_RANKS if os.environ.get(name)), None)
    return rank == 0 if local is None else local == "0"
