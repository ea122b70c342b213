"""Processes on the CPUs: which are this training's, and who else keeps them busy.  Linux only.

A process is this training's if it descends from the one that started its ranks.  Finding that out
takes a look at every process of the host, so it is done as rarely as its own cost demands; between
two looks only those of this training are read.
"""

import os
from pathlib import Path
from typing import NamedTuple

from trainperf.core.artifacts.machine import Neighbour
from trainperf.core.machine.clocks import HostClock, thread_ns
from trainperf.recording.machine.host import PROC
from trainperf.recording.schedule import CostLimit


SHARE = 0.003
"""Of a CPU, for looking at every process."""
LEAST_NS = 1_000_000_000
MENTIONED = 0.1
"""CPUs from which on another process is named."""
MOST_NAMED = 8

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01


class ProcessTimes(NamedTuple):
    """A process as it was when it was looked at."""

    parent: int
    cpu_s: float
    """Processor time so far, without that of its children."""
    name: str


class ProcessSource:
    """This training's processor time, and who else takes any.

    Args:
        clock: Monotonic, nanoseconds.
        training: Number of the training process.
        several: Whether the host has further ranks, which what started this one has started too.
        proc: What the kernel shows of processes.
    """

    def __init__(
        self, clock: HostClock, training: int, *, several: bool = False, proc: Path = PROC
    ) -> None:
        self._clock, self._proc = clock, proc
        self.works = (proc / "stat").is_file()
        itself = _stat(proc, training) if several else None
        # What has lost its parent is adopted by process 1.
        self._root = training if itself is None or itself.parent == 1 else itself.parent
        self._limit = CostLimit(SHARE, LEAST_NS)
        self.own = {training}
        """Numbers of this training's processes, as of the last look."""
        self._own_s: dict[int, float] = {}
        self._latest: dict[int, ProcessTimes] = {}
        self._read_ns = self._looked_ns = clock()
        if self.works:
            self.look(0)
            self.read()

    def read(self) -> float | None:
        """CPUs that this training kept busy since the reading before."""
        if not self.works:
            return None
        now_ns, read = self._clock(), {pid: _stat(self._proc, pid) for pid in self.own}
        own_s = {pid: each.cpu_s for pid, each in read.items() if each is not None}
        more_s = sum(cpu_s - self._own_s.get(pid, 0.0) for pid, cpu_s in own_s.items())
        elapsed_s = max((now_ns - self._read_ns) / 1e9, 1e-9)
        self._read_ns, self._own_s = now_ns, own_s
        return max(0.0, more_s / elapsed_s)

    def due(self) -> bool:
        """Whether every process may be looked at again."""
        return self.works and self._clock() >= self._limit.next_ns

    def look(self, at_ns: int) -> list[Neighbour]:
        """Look at every process, *at_ns* of the fit; others that were busy since the last look."""
        began_ns, now_ns = thread_ns(), self._clock()
        pids = [int(name) for name in os.listdir(self._proc) if name.isdigit()]  # noqa: PTH208 names alone
        read = {pid: _stat(self._proc, pid) for pid in pids}
        every = {pid: each for pid, each in read.items() if each is not None}
        self.own = _descendants(every, self._root) | {os.getpid()}
        elapsed_s = max((now_ns - self._looked_ns) / 1e9, 1e-3)
        cpus = {
            pid: (each.cpu_s - (self._latest[pid].cpu_s if pid in self._latest else 0)) / elapsed_s
            for pid, each in every.items()
            if pid not in self.own
        }
        self._latest, self._looked_ns = every, now_ns
        self._limit.done(self._clock(), thread_ns() - began_ns)
        busy = sorted((pid for pid in cpus if cpus[pid] >= MENTIONED), key=lambda pid: -cpus[pid])
        return [
            Neighbour(at_ns=at_ns, pid=pid, name=every[pid].name, cpus=round(cpus[pid], 3))
            for pid in busy[:MOST_NAMED]
        ]


def _stat(proc: Path, pid: int) -> ProcessTimes | None:
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:  # noqa: PTH123 thousands of them
            content = file.read()
        # The name is in brackets and may hold anything.
        before, _, after = content.rpartition(b")")
        fields = after.split()
        ticks = int(fields[11]) + int(fields[12])
        name = before.partition(b"(")[2].decode(errors="replace")
        return ProcessTimes(int(fields[1]), ticks * _TICK_S, name)
    except (OSError, IndexError, ValueError):
        return None


def _descendants(every: dict[int, ProcessTimes], root: int) -> set[int]:
    own = {root}
    while more := {pid for pid, each in every.items() if each.parent in own} - own:
        own |= more
    return own
