"""Other processes that keep processors busy while trainings run: what makes a proof take long.

Linux tells, in `/proc`; elsewhere nothing is known.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from trainperf.core.machine.clocks import monotonic_ns


EVERY_S = 3.0
"""Between two looks, each of which reads a file per process: some milliseconds."""

NOTABLE_CPUS = 0.25
"""From so many busy CPUs on they are mentioned."""

_BUSY = (0, 1, 2, 5, 6, 7)
"""Of the machine's times: user, nice, system, interrupts of both kinds, and what a hypervisor gave
to somebody else."""


class _Look(NamedTuple):
    at_ns: int
    busy_ticks: int
    ours_ticks: int


class Others:
    """How many CPUs are kept busy by processes that are neither ours nor the trainings'."""

    def __init__(
        self,
        pids: Iterable[int],
        *,
        root: Path = Path("/proc"),
        clock_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.cpus: list[float] = []
        """Of each stretch between two looks."""
        self._pids = {os.getpid(), *pids}
        self._root = root
        self._clock_ns = clock_ns
        self._last: _Look | None = None

    def look(self) -> None:
        """Look, if it is time for it."""
        now_ns = self._clock_ns()
        if self._last is not None and now_ns - self._last.at_ns < EVERY_S * 1e9:
            return
        try:
            look = _Look(now_ns, self._busy_ticks(), self._ours_ticks())
        except (OSError, ValueError, IndexError):
            return  # another system, or one that hides its processes
        if self._last is not None:
            others = (
                look.busy_ticks - self._last.busy_ticks - (look.ours_ticks - self._last.ours_ticks)
            )
            span_s = (now_ns - self._last.at_ns) / 1e9
            self.cpus.append(max(0.0, others / os.sysconf("SC_CLK_TCK") / span_s))
        self._last = look

    def _busy_ticks(self) -> int:
        with (self._root / "stat").open(encoding="ascii") as file:
            times = file.readline().split()[1:]
        return sum(int(times[place]) for place in _BUSY)

    def _ours_ticks(self) -> int:
        """Of our processes and what they have started, also of those that were waited for."""
        parents, ticks = {}, {}
        for path in self._root.iterdir():
            if not path.name.isdigit():
                continue
            try:
                text = (path / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has ended
            words = text.rpartition(")")[2].split()
            parents[int(path.name)] = int(words[1])
            ticks[int(path.name)] = sum(map(int, words[11:15]))
        return sum(used for pid, used in ticks.items() if self._is_ours(pid, parents))

    def _is_ours(self, pid: int, parents: dict[int, int]) -> bool:
        while pid in parents:
            if pid in self._pids:
                return True
            pid = parents[pid]
        return False


def typical(cpus: Iterable[float]) -> float | None:
    """Of several stretches the median: a process of ours that nobody waited for counts once."""
    stretches = list(cpus)
    return median(stretches) if stretches else None
