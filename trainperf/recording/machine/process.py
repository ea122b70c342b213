"""The low-priority process that samples the machine beside a fit, `python -m …`.

It is ended with the fit, by the fit or, however that ended, by the kernel; elsewhere than on Linux
it looks whether the training process is there.  It never writes to that process, and takes no lock
that it has.
"""

import gzip
import os
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil

from trainperf.core.artifacts.machine import (
    DEVICE_COLUMNS,
    HOST_COLUMNS,
    MachineHeader,
    Neighbour,
    device_column,
)
from trainperf.core.machine.clocks import monotonic_ns, thread_ns
from trainperf.core.machine.processes import run_beside_parent
from trainperf.core.run_directory import packed_part, write_atomically
from trainperf.recording.machine.devices import DeviceSource, nvml_of
from trainperf.recording.machine.host import HostSource
from trainperf.recording.machine.neighbours import MENTIONED, ProcessSource
from trainperf.recording.rotating_file import RotatingFile
from trainperf.recording.schedule import CostLimit


SHARE = 0.005
"""Of a CPU, for sampling: what costs more is done less often."""
AGAIN_NS = 10_000_000_000
"""After which another process is named once more."""
OWN_EVERY = 30
"""Samples after which the processes of this training are looked for, whoever else is there."""
_LOOK_S = 1.0
"""How often it looks whether the training process is still there."""


class Sampler:
    """Reads everything at once, as a line of the file.

    Args:
        given: What the training process said: `parent`, `thread`, `zero_ns`, …
    """

    def __init__(self, given: SimpleNamespace) -> None:
        self._zero_ns = given.zero_ns
        self._host = HostSource(monotonic_ns, (given.parent, given.thread))
        self._processes = ProcessSource(monotonic_ns, given.parent, several=given.several)
        nvml, why = nvml_of(given.devices)
        self._devices = DeviceSource(nvml, given.devices)
        devices = self._devices.devices
        self.header = MachineHeader(
            rank=given.rank,
            attempt=given.attempt,
            host=platform.node(),
            every_s=given.every_s,
            columns=(
                "at_ns",
                *HOST_COLUMNS,
                *(device_column(at, name) for at in range(len(devices)) for name in DEVICE_COLUMNS),
            ),
            devices=devices,
            cpus=psutil.cpu_count(),
            reasons={**self._host.reasons, **({"devices": why} if why else {})},
        )
        self._named_ns: dict[tuple[int, int | None], int] = {}
        self._samples = 0

    def sample(self) -> bytes:
        """The next line, and lines on neighbours that were not named just now."""
        now_ns = monotonic_ns() - self._zero_ns
        host = self._host.read()
        host["cpu_own"] = own = self._processes.read()
        others = (host.get("cpu_busy") or 0.0) - own >= MENTIONED
        wanted = others or self._samples % OWN_EVERY == 0
        looks = wanted and monotonic_ns() >= self._processes.limit.next_ns
        neighbours = self._processes.look(now_ns) if looks else []
        self._samples += 1
        devices, beside = self._devices.read(self._processes.own, now_ns)
        values = [host.get(name) for name in HOST_COLUMNS]
        values += [device[name] for device in devices for name in DEVICE_COLUMNS]
        lines = [[now_ns, *map(_short, values)], *self._new([*neighbours, *beside], now_ns)]
        return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)

    def _new(self, neighbours: Sequence[Neighbour], now_ns: int) -> list[Neighbour]:
        """Those that were not named just now."""
        named = {key: at for key, at in self._named_ns.items() if now_ns - at < AGAIN_NS}
        new = [each for each in neighbours if (each.pid, each.device) not in named]
        self._named_ns = {**named, **{(each.pid, each.device): now_ns for each in new}}
        return new


def main(arguments: Sequence[str]) -> int:
    """Sample as the JSON in the first argument says, until the fit is over."""
    given = SimpleNamespace(**msgspec.json.decode(arguments[0]))
    run_beside_parent()
    # The disk is full, or the directory was taken away: nothing trains less for that.
    with suppress(OSError), closing(RotatingFile(Path(given.file), given.most, pack)) as file:
        sampler = Sampler(given)
        file.write(msgspec.json.encode(sampler.header) + b"\n")
        limit = CostLimit(SHARE, int(given.every_s * 1e9))
        limit.done(monotonic_ns(), 0)
        while os.getppid() == given.parent:
            left_s = (limit.next_ns - monotonic_ns()) / 1e9
            if left_s > 0:
                time.sleep(min(left_s, _LOOK_S))
                continue
            began_ns, spent_ns = monotonic_ns(), thread_ns()
            file.write(sampler.sample())
            limit.done(began_ns, thread_ns() - spent_ns)
    return 0


def pack(part: Path) -> None:
    """Have a packed part instead; at any moment one of both is whole."""
    with suppress(OSError):  # the disk is full: it stays as it is
        write_atomically(packed_part(part), gzip.compress(part.read_bytes(), mtime=0))
        part.unlink()


def _short(value: float | None) -> float | None:
    """Five digits: more is noise, and a day of them is a file."""
    return None if value is None else float(f"{value:.5g}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
