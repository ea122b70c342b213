"""The low-priority process that samples the machine beside a fit, `python -m …`.

It ends when its standard input is written to or closed, or when the training process is gone,
however that ended.  It never writes to the training process, and takes no lock that it has.
"""

import argparse
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from trainperf.core.artifacts.machine import (
    DEVICE_COLUMNS,
    HOST_COLUMNS,
    MachineEnd,
    MachineHeader,
    Neighbour,
    device_column,
)
from trainperf.core.machine.clocks import monotonic_ns, thread_ns
from trainperf.core.machine.processes import run_beside_parent
from trainperf.recording.machine.devices import DeviceSource, nvml_of
from trainperf.recording.machine.host import HostSource
from trainperf.recording.machine.neighbours import ProcessSource
from trainperf.recording.machine.rotating import RotatingFile, rotating


SHARE = 0.005
"""Of a CPU, for sampling: what costs more is done less often."""
AGAIN_NS = 10_000_000_000
"""After which another process that keeps CPUs busy is named once more."""
_LOOK_S = 1.0
"""How often it looks whether the training process is still there."""

_encode = msgspec.json.Encoder().encode


class Sampler:
    """Reads everything at once, as a line of the file.

    Args:
        given: What the training process said: `--parent`, `--thread`, `--zero-ns`, …
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._zero_ns = given.zero_ns
        self._host = HostSource(monotonic_ns, (given.parent, given.thread))
        self._processes = ProcessSource(monotonic_ns, given.parent, several=given.several)
        nvml, why = nvml_of(given.device)
        self._devices = None if nvml is None else DeviceSource(nvml, given.device, monotonic_ns)
        devices = self._devices.devices if self._devices is not None else ()
        unknown = {} if self._processes.works else {"cpu_own": "only Linux tells it here"}
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
            reasons={**self._host.reasons, **unknown, **({"devices": why} if why else {})},
        )
        self._on_devices: set[tuple[int, int | None]] = set()
        self._named_ns: dict[int, int] = {}
        self.samples = 0

    def sample(self) -> bytes:
        """The next line, and lines on neighbours that are new."""
        now_ns = monotonic_ns() - self._zero_ns
        host = self._host.read()
        host["cpu_own"] = own = self._processes.read()
        busy = host.get("cpu_busy")
        neighbours: list[Neighbour] = []
        others = own is not None and busy is not None and busy - own >= 0.1
        if (others or self.samples % 30 == 0) and self._processes.due():
            neighbours += self._busy(now_ns)
        devices: list[dict[str, float | None]] = []
        if self._devices is not None:
            devices, beside = self._devices.read(self._processes.own)
            neighbours += self._new_on_devices(beside, now_ns)
        host["sampler_s"] = time.process_time()
        values = [host.get(name) for name in HOST_COLUMNS]
        values += [device[name] for device in devices for name in DEVICE_COLUMNS]
        self.samples += 1
        lines = [_encode([now_ns, *map(_short, values)]), *map(_encode, neighbours)]
        return b"\n".join(lines) + b"\n"

    def end(self) -> bytes:
        """The last line."""
        return _encode(MachineEnd(samples=self.samples, sampler_s=time.process_time())) + b"\n"

    def _busy(self, now_ns: int) -> list[Neighbour]:
        """Other processes on the CPUs; one that was named just now is not named again."""
        named = [
            Neighbour(at_ns=now_ns, pid=each.pid, name=each.name, cpus=round(each.cpus, 3))
            for each in self._processes.look()
            if now_ns - self._named_ns.get(each.pid, -AGAIN_NS) >= AGAIN_NS
        ]
        self._named_ns |= {each.pid: now_ns for each in named}
        return named

    def _new_on_devices(self, beside: Sequence[Neighbour], now_ns: int) -> list[Neighbour]:
        """Those that were not there at the sample before."""
        present = {(each.pid, each.device) for each in beside}
        new = [each for each in beside if (each.pid, each.device) not in self._on_devices]
        self._on_devices = present
        return [msgspec.structs.replace(each, at_ns=now_ns) for each in new]


def main(arguments: Sequence[str]) -> int:
    """Sample until the fit is over; 0 in any case that is not a mistake of the caller's."""
    given = _parser().parse_args(arguments)
    over = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the fit
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    run_beside_parent()
    threading.Thread(target=_listen, args=(over,), daemon=True).start()
    # The disk is full, or the directory was taken away: nothing trains less for that.
    with suppress(OSError), rotating(given.file, given.most) as file:
        _sample_until(over, given, file)
    return 0


def _sample_until(over: threading.Event, given: argparse.Namespace, file: RotatingFile) -> None:
    sampler = Sampler(given)
    file.write(_encode(sampler.header) + b"\n")
    due_ns = monotonic_ns() + int(given.every_s * 1e9)
    while not _waited_for(over, due_ns, given.parent):
        began, spent = monotonic_ns(), thread_ns()
        file.write(sampler.sample())
        cost_ns = thread_ns() - spent
        due_ns = max(due_ns + int(given.every_s * 1e9), began + int(cost_ns / SHARE))
    if over.is_set():
        file.write(sampler.sample() + sampler.end())


def _waited_for(over: threading.Event, due_ns: int, parent: int) -> bool:
    """Wait until then, or until the fit is over; whether it is."""
    while (left_s := (due_ns - monotonic_ns()) / 1e9) > 0:
        if over.wait(min(left_s, _LOOK_S)) or os.getppid() != parent:
            return True
    return over.is_set()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainperf.recording.machine.process")
    parser.add_argument("file", type=Path)
    for name in ("--parent", "--thread", "--zero-ns", "--rank", "--attempt"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--every-s", type=float, default=1.0)
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--several", action="store_true")
    parser.add_argument("--device", action="append", default=[])
    return parser


def _listen(over: threading.Event) -> None:
    """Wait for the line that says that the fit is over; its end says so too."""
    sys.stdin.readline()
    over.set()


def _short(value: float | None) -> float | int | None:
    """Five digits: more is noise, and a day of them is a file."""
    if value is None:
        return None
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() else rounded


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
