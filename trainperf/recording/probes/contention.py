"""Contention for the host's CPUs: how long the training thread and the loader's workers lack one.

Linux counts for every thread how long it ran and how long it was ready to run and had no CPU, for
a process how often a CPU was taken from it, and for a control group in how many periods its quota
was used up.  Sums since the first reading are kept, for the whole fit: no step has them.
"""

import os
from pathlib import Path
from typing import ClassVar

from trainperf.core.machine.limits import quota_periods
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft, Recorder
from trainperf.recording.schedule import CostLimit


_PROC = Path("/proc")

LEAST_NS, SHARE = 1_000_000_000, 2e-4
"""Time between two readings, at least, and the most of the time that they may take."""


class ContentionProbe(Probe):
    """Reads what the kernel counts, once a second at most, and at the end.

    Workers are this thread's child processes; those of a fork server are not seen.

    Args:
        proc: What the kernel shows of processes.
    """

    name = "contention"
    facts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, proc: Path = _PROC) -> None:
        self._thread = proc / "thread-self"
        self._proc = proc
        self._first: dict[str, int] | None = None
        self._latest: dict[str, int] = {}
        self._workers: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
        """Of each child process what it had run and waited, nanoseconds: at first, and latest."""

    def attach(self, recorder: Recorder) -> None:
        """Begin with the first reading."""
        super().attach(recorder)
        self._limit = CostLimit(SHARE, LEAST_NS)

    def look(self, draft: Draft) -> None:
        """Read, on the thread that trains."""
        del draft
        now = self.recorder.now_ns()
        if now < self.due_ns:
            return
        self._read(now)
        ended = self.recorder.now_ns()
        self._limit.done(ended, ended - now)
        self.due_ns = self._limit.next_ns

    def ended(self, reason: str) -> None:
        """The last reading; workers that are gone keep their last one."""
        del reason
        if self._first is not None:
            self._read(self.recorder.now_ns())

    def totals(self) -> dict[str, int]:
        """Sums since the first reading: `Totals.contention` has their names and units."""
        if self._first is None or self._latest["span_ns"] <= self._first["span_ns"]:
            return {}
        sums = {name: now - self._first[name] for name, now in self._latest.items()}
        for place, name in enumerate(("workers_ran_ns", "workers_waited_ns")):
            pairs = self._workers.values()
            sums[name] = sum(latest[place] - first[place] for first, latest in pairs)
        return sums

    def _read(self, now: int) -> None:
        import resource  # noqa: PLC0415 Windows has none, and no such counts

        usage = resource.getrusage(resource.RUSAGE_SELF)
        counted = {
            "span_ns": now,
            "preemptions": usage.ru_nivcsw,
            "kernel_ns": round(usage.ru_stime * 1e9),
        }
        scheduled = _scheduled(self._thread)
        if scheduled is not None:
            counted["ran_ns"], counted["waited_ns"] = scheduled
        periods = quota_periods()
        if periods is not None:
            counted["quota_periods"], counted["throttled_periods"] = periods
        self._first = self._first or counted
        self._latest = {name: counted.get(name, at) for name, at in self._first.items()}
        for worker in _children(self._thread):
            read = _scheduled(self._proc / str(worker))
            if read is not None:
                first, latest = self._workers.get(worker, (read, read))
                # The system may have given its number to another process since.
                self._workers[worker] = (first if read >= latest else read, read)


def _scheduled(task: Path) -> tuple[int, int] | None:
    """Nanoseconds that it ran, and that it waited for a CPU."""
    try:
        ran, waited, *_ = (task / "schedstat").read_bytes().split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None


def _children(task: Path) -> list[int]:
    try:
        return [int(pid) for pid in (task / "children").read_bytes().split()]
    except OSError:
        return []


def countable(proc: Path = _PROC) -> bool:
    """Whether this system counts it, as Linux does unless it was built without."""
    return os.access(proc / "thread-self" / "schedstat", os.R_OK)
