"""The host beside the loop: CPUs, pressure, memory, disks and network, as rates since last time.

Nothing here waits.  What a system does not tell has a reason and no value.
"""

from collections.abc import Callable
from pathlib import Path

import psutil

from trainperf.core.machine.clocks import HostClock
from trainperf.core.machine.limits import busy_s


PROC = Path("/proc")
_PRESSURES = {"cpu_pressure": "cpu", "memory_pressure": "memory", "io_pressure": "io"}
_LOOPBACK = ("lo", "lo0")

Counters = dict[str, float]


class HostSource:
    """Rates of the host's counters.

    Args:
        clock: Monotonic, nanoseconds.
        thread: Process and thread that train; `None` where the system has no such numbers.
        proc: What the kernel shows of processes.
    """

    def __init__(
        self, clock: HostClock, thread: tuple[int, int] | None = None, proc: Path = PROC
    ) -> None:
        self._clock, self._proc = clock, proc
        self._task = None if thread is None else proc / str(thread[0]) / "task" / str(thread[1])
        self.reasons = self._missing()
        self._then, self._counters = clock(), self._counted()

    def read(self) -> dict[str, float | None]:
        """Values since the reading before."""
        now, counters = self._clock(), self._counted()
        elapsed_s = max((now - self._then) / 1e9, 1e-9)
        rates: dict[str, float | None] = {
            name: max(0.0, (value - self._counters[name]) / elapsed_s)
            for name, value in counters.items()
            if name in self._counters
        }
        self._then, self._counters = now, counters
        rates["memory_free"] = float(psutil.virtual_memory().available)
        return rates

    def _missing(self) -> dict[str, str]:
        reasons: dict[str, str] = {}
        if not (self._proc / "pressure").is_dir():
            why = "this system has no pressure stall information (PSI)"
            reasons |= dict.fromkeys(_PRESSURES, why)
        if self._task is None or not (self._task / "schedstat").exists():
            reasons["waited"] = "this system does not count how long a thread waits for a CPU"
        return reasons

    def _counted(self) -> Counters:
        """Sums that only grow, each in the unit of its rate times a second."""
        counters: Counters = {}
        for source in (
            self._cpus,
            self._pressure,
            self._waited,
            self._swap,
            self._disks,
            self._net,
        ):
            counters |= _quietly(source)
        return counters

    def _cpus(self) -> Counters:
        busy, stolen = busy_s()
        return {"cpu_busy": busy, "cpu_stolen": stolen}

    def _pressure(self) -> Counters:
        return {
            column: total / 1e6
            for column, resource in _PRESSURES.items()
            if (total := stalled_us(self._proc / "pressure" / resource)) is not None
        }

    def _waited(self) -> Counters:
        if self._task is None:
            return {}
        fields = (self._task / "schedstat").read_bytes().split()
        return {"waited": int(fields[1]) / 1e9}

    def _swap(self) -> Counters:
        swap = psutil.swap_memory()
        return {"swapped": float(swap.sin + swap.sout)}

    def _disks(self) -> Counters:
        disks = psutil.disk_io_counters()
        if disks is None:
            return {}
        return {"disk_read": float(disks.read_bytes), "disk_written": float(disks.write_bytes)}

    def _net(self) -> Counters:
        cards = [
            card
            for name, card in psutil.net_io_counters(pernic=True).items()
            if name not in _LOOPBACK
        ]
        received = float(sum(card.bytes_recv for card in cards))
        sent = float(sum(card.bytes_sent for card in cards))
        return {"net_received": received, "net_sent": sent, **self._segments()}

    def _segments(self) -> Counters:
        path = self._proc / "net" / "snmp"
        if not path.is_file():
            return {}
        lines = [line.split() for line in path.read_text().splitlines() if line[:4] == "Tcp:"]
        tcp = dict(zip(*lines, strict=False))
        return {
            "net_segments": float(tcp["OutSegs"]),
            "net_retransmitted": float(tcp["RetransSegs"]),
        }


def stalled_us(file: Path) -> int | None:
    """Microseconds in which some task was stalled, from a file of PSI; `None` without one."""
    try:
        some = file.read_text().partition("\n")[0]
    except OSError:
        return None
    total = some.rpartition("total=")[2]
    return int(total) if some.startswith("some") and total.isdigit() else None


def _quietly(source: Callable[[], Counters]) -> Counters:
    """Nothing where the system does not tell, or no longer."""
    try:
        return source()
    except (OSError, ValueError, KeyError, IndexError, NotImplementedError, RuntimeError):
        return {}
