"""Processes on the CPUs: which are this training's, and who else keeps them busy.

A process is this training's if it descends from the one that started its ranks.  Finding that out
takes a look at every process of the host, so it is done as rarely as its own cost demands; between
two looks only those of this training are read.
"""

import os
from contextlib import suppress
from typing import Any

import psutil

from trainperf.core.artifacts.machine import Neighbour
from trainperf.core.machine.clocks import HostClock, thread_ns
from trainperf.recording.schedule import CostLimit


SHARE = 0.003
"""Of a CPU, for looking at every process."""
LEAST_NS = 1_000_000_000
MENTIONED = 0.1
"""CPUs from which on another process is named."""
MOST_NAMED = 8


class ProcessSource:
    """This training's processor time, and who else takes any.

    Args:
        clock: Monotonic, nanoseconds.
        training: Number of the training process.
        several: Whether the host has further ranks, which what started this one has started too.
    """

    def __init__(self, clock: HostClock, training: int, *, several: bool = False) -> None:
        self._clock = clock
        parent = psutil.Process(training).ppid() if several else 1
        # What has lost its parent is adopted by process 1.
        self._root = training if parent == 1 else parent
        self.limit = CostLimit(SHARE, LEAST_NS)
        """When every process may be looked at again."""
        self.own = {training}
        """Numbers of this training's processes, as of the last look."""
        self._own_s: dict[int, float] = {}
        self._latest_s: dict[int, float] = {}
        self._read_ns = self._looked_ns = clock()
        self.look(0)
        self.read()

    def read(self) -> float:
        """CPUs that this training kept busy since the reading before."""
        now_ns, before_s, self._own_s = self._clock(), self._own_s, {}
        for pid in self.own:
            with suppress(psutil.Error):
                self._own_s[pid] = _cpu_s(psutil.Process(pid).cpu_times())
        more_s = sum(cpu_s - before_s.get(pid, 0.0) for pid, cpu_s in self._own_s.items())
        elapsed_s = max((now_ns - self._read_ns) / 1e9, 1e-9)
        self._read_ns = now_ns
        return max(0.0, more_s / elapsed_s)

    def look(self, at_ns: int) -> list[Neighbour]:
        """Look at every process, *at_ns* of the fit; others that were busy since the last look."""
        began_ns, now_ns = thread_ns(), self._clock()
        self.own = {self._root, os.getpid()}
        with suppress(psutil.Error):  # a launcher may end before the ranks that it started
            self.own |= {each.pid for each in psutil.Process(self._root).children(recursive=True)}
        infos = {each.pid: each.info for each in psutil.process_iter(["cpu_times", "name"])}
        every_s = {pid: _cpu_s(info["cpu_times"]) for pid, info in infos.items()}
        elapsed_s = max((now_ns - self._looked_ns) / 1e9, 1e-3)
        cpus = {
            pid: (cpu_s - self._latest_s.get(pid, 0.0)) / elapsed_s
            for pid, cpu_s in every_s.items()
            if pid not in self.own
        }
        self._latest_s, self._looked_ns = every_s, now_ns
        self.limit.done(self._clock(), thread_ns() - began_ns)
        busy = sorted((pid for pid in cpus if cpus[pid] >= MENTIONED), key=lambda pid: -cpus[pid])
        return [
            Neighbour(at_ns=at_ns, pid=pid, name=infos[pid]["name"] or "", cpus=round(cpus[pid], 3))
            for pid in busy[:MOST_NAMED]
        ]


def _cpu_s(times: Any) -> float:  # noqa: ANN401 another class on each system
    """Processor time without that of its children; 0 where this user may not know it."""
    return 0.0 if times is None else float(times.user + times.system)
