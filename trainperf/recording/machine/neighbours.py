"""Processes on the CPUs: which are this training's, and who else keeps them busy.  Linux only.

A process is this training's if it descends from the one that started its ranks.  Finding that out
takes a look at every process of the host, so it is done as rarely as its own cost demands; between
two looks only the known ones are read.
"""

import os
from dataclasses import dataclass
from pathlib import Path

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
_SHELLS = ("bash", "sh", "dash", "zsh", "fish", "tmux", "screen", "sshd", "su", "sudo", "systemd")
_LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "slurmstepd", "mpirun", "orted")


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """A process as it was when it was looked at."""

    parent: int
    cpu_s: float
    """Processor time so far, without that of its children."""
    name: str


@dataclass(frozen=True, slots=True)
class BusyProcess:
    """Another process, and the CPUs it kept busy since it was last looked at."""

    pid: int
    name: str
    cpus: float


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
        self.root = self._launcher(training) if several else training
        self._limit = CostLimit(SHARE, LEAST_NS)
        self._latest: dict[int, ProcessTimes] = {}
        self._latest_ns = clock()
        self.own: frozenset[int] = frozenset({training})
        """Numbers of this training's processes, as of the last look."""
        self._cpu_s: dict[int, float] = {}
        self._then_ns = self._latest_ns
        if self.works:
            self.look()
            self._cpu_s = self._own_cpu_s()

    def read(self) -> float | None:
        """CPUs that this training kept busy since the reading before."""
        if not self.works:
            return None
        now, spent = self._clock(), self._own_cpu_s()
        more_s = sum(cpu_s - self._cpu_s.get(pid, 0.0) for pid, cpu_s in spent.items())
        elapsed_s = max((now - self._then_ns) / 1e9, 1e-9)
        self._then_ns, self._cpu_s = now, spent
        return max(0.0, more_s / elapsed_s)

    def due(self) -> bool:
        """Whether every process may be looked at again."""
        return self.works and self._clock() >= self._limit.next_ns

    def look(self) -> list[BusyProcess]:
        """Look at every process; of the others those that were busy since the last look."""
        began = thread_ns()
        now, every = self._clock(), self._every()
        elapsed_s = max((now - self._latest_ns) / 1e9, 1e-3)
        self.own = _descendants(every, self.root) | {os.getpid()}
        others = {pid: each for pid, each in every.items() if pid not in self.own}
        busy = [
            BusyProcess(pid, each.name, (each.cpu_s - self._before_s(pid, each)) / elapsed_s)
            for pid, each in others.items()
        ]
        self._latest, self._latest_ns = every, now
        self._limit.done(self._clock(), thread_ns() - began)
        busy = [each for each in busy if each.cpus >= MENTIONED]
        return sorted(busy, key=lambda each: -each.cpus)[:MOST_NAMED]

    def _before_s(self, pid: int, now: ProcessTimes) -> float:
        """Its processor time at the look before: none if it was not there, all at the first."""
        if not self._latest:
            return now.cpu_s
        before = self._latest.get(pid)
        return 0.0 if before is None or before.cpu_s > now.cpu_s else before.cpu_s

    def _own_cpu_s(self) -> dict[int, float]:
        read = {pid: _stat(self._proc, pid) for pid in self.own}
        return {pid: each.cpu_s for pid, each in read.items() if each is not None}

    def _every(self) -> dict[int, ProcessTimes]:
        pids = [int(name) for name in os.listdir(self._proc) if name.isdigit()]  # noqa: PTH208 names alone
        read = {pid: _stat(self._proc, pid) for pid in pids}
        return {pid: each for pid, each in read.items() if each is not None}

    def _launcher(self, training: int) -> int:
        """What started the ranks of this host; the training itself where that is a shell."""
        itself = _stat(self._proc, training)
        above = None if itself is None else _stat(self._proc, itself.parent)
        if itself is None or above is None or itself.parent == 1 or above.name in _SHELLS:
            return training
        return itself.parent if above.name.startswith(_LAUNCHERS) else training


def _stat(proc: Path, pid: int) -> ProcessTimes | None:
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:  # noqa: PTH123 thousands of them
            content = file.read()
    except OSError:
        return None
    # The name is in brackets and may hold anything.
    before, _, after = content.rpartition(b")")
    fields = after.split()
    try:
        ticks = int(fields[11]) + int(fields[12])
        name = before.partition(b"(")[2].decode(errors="replace")
        return ProcessTimes(int(fields[1]), ticks * _TICK_S, name)
    except (IndexError, ValueError):
        return None


def _descendants(every: dict[int, ProcessTimes], root: int) -> frozenset[int]:
    children: dict[int, list[int]] = {}
    for pid, each in every.items():
        children.setdefault(each.parent, []).append(pid)
    own, waiting = {root}, [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in own:
                own.add(child)
                waiting.append(child)
    return frozenset(own)
