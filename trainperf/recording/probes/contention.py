"""Contention for the host's CPUs: what Linux counts of this process's threads and its workers.

For every thread it counts how long it ran and how long it was ready to run and had no CPU, for a
process how often a CPU was taken from it, and for a control group in how many periods its quota was
used up.  Sums since the first reading are kept, for the whole fit: no step has them.

Python's other threads are told apart by name: a callback that hands its work to a thread has not
got rid of it.  What runs Python there keeps the interpreter from the training, and what does not
may take a core from it; TensorBoard's writer computes its checksums byte by byte in Python.
"""

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from trainperf.core.machine.limits import quota_periods
from trainperf.recording.probes.base import ReadingProbe
from trainperf.recording.recorder import Draft, Recorder
from trainperf.recording.schedule import CostLimit


_PROC = Path("/proc")

LEAST_NS, SHARE = 1_000_000_000, 2e-4
"""Time between two readings, at least, and the most of the time that they may take."""

OWN = "trainperf"
"""Our threads' names begin with it."""

_NUMBERED = re.compile(r"^Thread-\d+(?: \((.+)\))?$")

_TRAINS, _WORKER = 0, 1
"""The training thread, and a worker; any other thread is its name."""


class ContentionProbe(ReadingProbe):
    """Reads what the kernel counts, once a second at most, and at the end.

    A thread or a worker that is there at the first reading counts from then on, a later one from
    its start; what one does after its last reading does not count.  Workers are this thread's child
    processes; those of a fork server are not seen.

    Args:
        proc: What the kernel shows of processes.
    """

    name = "contention"

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._first: dict[str, int] = {}
        self._latest: dict[str, int] = {}
        self._tasks: dict[tuple[int | str, Path], tuple[int, int]] = {}
        """What each had run and waited at the latest reading, nanoseconds."""
        self._ran_ns: Counter[int | str] = Counter()
        self._waited_ns: Counter[int | str] = Counter()

    def attach(self, recorder: Recorder) -> None:
        """Begin with the first reading."""
        super().attach(recorder)
        self.limit = CostLimit(SHARE, LEAST_NS)
        self._trains = threading.get_native_id()

    def ended(self, reason: str) -> None:
        """The last reading; what is gone keeps its last one."""
        del reason
        self._read()

    def totals(self) -> dict[str, int]:
        """Sums since the first reading: `Totals.contention` has their names and units."""
        sums = {name: self._latest[name] - at for name, at in self._first.items()}
        if not sums.get("span_ns"):
            return {}
        if _TRAINS in self._ran_ns:
            sums |= {"ran_ns": self._ran_ns[_TRAINS], "waited_ns": self._waited_ns[_TRAINS]}
        workers = self._ran_ns[_WORKER], self._waited_ns[_WORKER]
        return sums | dict(zip(("workers_ran_ns", "workers_waited_ns"), workers, strict=True))

    def threads_ns(self) -> dict[str, int]:
        """Other thread of Python to the nanoseconds it ran; those of one name together."""
        return {name: ran for name, ran in self._ran_ns.items() if isinstance(name, str)}

    def read(self, draft: Draft) -> None:
        """Read, on the thread that trains."""
        del draft
        self._read()

    def _read(self) -> None:
        import resource  # noqa: PLC0415 Windows has none, and no such counts

        usage = resource.getrusage(resource.RUSAGE_SELF)
        counted = {
            "span_ns": self.recorder.now_ns(),
            "preemptions": usage.ru_nivcsw,
            "kernel_ns": round(usage.ru_stime * 1e9),
        }
        periods = quota_periods()
        if periods is not None:
            counted["quota_periods"], counted["throttled_periods"] = periods
        before, self._tasks = self._tasks, dict(self._scheduled())
        for task, (ran_ns, waited_ns) in self._tasks.items() if self._first else ():
            ran_before_ns, waited_before_ns = before.get(task, (0, 0))
            if ran_ns < ran_before_ns:  # it has ended, and its number is another's
                ran_before_ns = waited_before_ns = 0
            self._ran_ns[task[0]] += ran_ns - ran_before_ns
            self._waited_ns[task[0]] += waited_ns - waited_before_ns
        self._first = self._first or counted
        self._latest |= counted

    def _scheduled(self) -> Iterator[tuple[tuple[int | str, Path], tuple[int, int]]]:
        for task in self._present():
            try:
                ran, waited, *_ = (task[1] / "schedstat").read_bytes().split()
            except (OSError, ValueError):  # it has ended, or this system does not count
                continue
            yield task, (int(ran), int(waited))

    def _present(self) -> Iterator[tuple[int | str, Path]]:
        trains = self._proc / "thread-self"
        yield _TRAINS, trains
        children = trains / "children"
        for worker in children.read_text().split() if children.exists() else ():
            yield _WORKER, self._proc / worker
        for thread in threading.enumerate():
            number = thread.native_id
            if number not in (None, self._trains) and not thread.name.startswith(OWN):
                yield named(thread), self._proc / "self" / "task" / str(number)


def named(thread: threading.Thread) -> str:
    """The package whose class it is; of Python's own class its name, or that of its function."""
    package = type(thread).__module__.partition(".")[0]
    if package not in ("threading", "__main__"):
        return package
    numbered = _NUMBERED.match(thread.name)
    if numbered is None:
        return re.sub(r"[-_]?\d+(?:_\d+)?$", "", thread.name)
    return numbered[1] or "a thread"


def countable(proc: Path = _PROC) -> bool:
    """Whether this system counts it, as Linux does unless it was built without."""
    return os.access(proc / "thread-self" / "schedstat", os.R_OK)
