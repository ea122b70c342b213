"""The host beside the loop: CPUs, pressure, memory and disks, as rates since last time.

Nothing here waits.  What a system does not tell has a reason and no value.
"""

from contextlib import suppress
from pathlib import Path

import psutil

from trainperf.core.machine.clocks import HostClock
from trainperf.core.machine.limits import busy_s
from trainperf.core.machine.processes import PROC


_PRESSURES = {"cpu_pressure": "cpu", "memory_pressure": "memory", "io_pressure": "io"}
_WHY_NOT = {
    **dict.fromkeys(_PRESSURES, "this system has no pressure stall information (PSI)"),
    "waited": "this system does not count how long a thread waits for a CPU",
}
_UNTOLD = (OSError, ValueError, IndexError, NotImplementedError, RuntimeError)
"""What reading raises where the system does not tell, or no longer."""


class HostSource:
    """Rates of the host's counters.

    Args:
        clock: Monotonic, nanoseconds.
        thread: Process and thread that train.
        proc: What the kernel shows of processes.
    """

    def __init__(self, clock: HostClock, thread: tuple[int, int], proc: Path = PROC) -> None:
        self._clock, self._pressures = clock, proc / "pressure"
        self._schedstat = proc / f"{thread[0]}/task/{thread[1]}/schedstat"
        self._then_ns, self._counters = clock(), self._counted()
        self.reasons = {name: _WHY_NOT[name] for name in _WHY_NOT if name not in self._counters}

    def read(self) -> dict[str, float | None]:
        """Values since the reading before."""
        now_ns, counters = self._clock(), self._counted()
        elapsed_s = max((now_ns - self._then_ns) / 1e9, 1e-9)
        rates: dict[str, float | None] = {
            name: max(0.0, (value - self._counters[name]) / elapsed_s)
            for name, value in counters.items()
            if name in self._counters
        }
        self._then_ns, self._counters = now_ns, counters
        rates["memory_free"] = float(psutil.virtual_memory().available)
        return rates

    def _counted(self) -> dict[str, float]:
        """Sums that only grow, each in the unit of its rate times a second."""
        counters: dict[str, float] = {}
        with suppress(*_UNTOLD):
            counters["cpu_busy"], counters["cpu_stolen"] = busy_s()
        for column, resource in _PRESSURES.items():
            with suppress(*_UNTOLD):
                # The first line is of some tasks and ends in its total, microseconds.
                some = (self._pressures / resource).read_text().splitlines()[0]
                counters[column] = int(some.rpartition("total=")[2]) / 1e6
        with suppress(*_UNTOLD):
            counters["waited"] = int(self._schedstat.read_bytes().split()[1]) / 1e9
        with suppress(*_UNTOLD):
            swap = psutil.swap_memory()
            counters["swapped"] = float(swap.sin + swap.sout)
        with suppress(*_UNTOLD):
            disks = psutil.disk_io_counters()
            if disks is not None:
                counters["disk_read"] = float(disks.read_bytes)
                counters["disk_written"] = float(disks.write_bytes)
        return counters
