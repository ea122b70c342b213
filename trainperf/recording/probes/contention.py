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
from typing import ClassVar

from trainperf.core.machine.limits import quota_periods, text_of
from trainperf.core.machine.processes import PROC
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft


OWN = "trainperf"
"""Our threads' names begin with it."""

_NUMBERED = re.compile(r"^Thread-\d+(?: \((.+)\))?$")

_THREAD = "thread "
"""Sums of threads by name begin with it."""

Counted = Iterator[tuple[tuple[Path | None, str], int]]
"""A thread or process, or `None` for this one; the sum that it is a part of; and the count."""


class ContentionProbe(Probe):
    """Reads what the kernel counts, once a second at most, and at the end.

    A thread or a worker that is there at the first reading counts from then on, a later one from
    its start; what one does after its last reading does not count.  Workers are this thread's child
    processes; those of a fork server are not seen.

    Args:
        proc: What the kernel shows of processes.
    """

    name = "contention"
    share: ClassVar[float] = 2e-4
    least_ns: ClassVar[int] = 1_000_000_000

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._latest: dict[tuple[Path | None, str], int] = {}
        self._sums = Counter(workers_ran_ns=0, workers_waited_ns=0)

    def begin(self) -> None:
        """Begin with the first reading."""
        self._trains = threading.get_native_id()

    def totals(self) -> dict[str, int]:
        """Sums since the first reading: `Totals.contention` has their names and units."""
        sums = {name: ns for name, ns in self._sums.items() if not name.startswith(_THREAD)}
        return sums if sums.get("span_ns") else {}

    def threads_ns(self) -> dict[str, int]:
        """Other thread of Python to the nanoseconds it ran; those of one name together."""
        return {
            name.removeprefix(_THREAD): ns
            for name, ns in self._sums.items()
            if name.startswith(_THREAD)
        }

    def ended(self, reason: str) -> None:
        """The last reading, which may come where no step is open any more."""
        self.sample()

    def sample(self, draft: Draft | None = None) -> None:
        """Read, on the thread that trains; what is gone keeps its last reading."""
        first, counted = not self._latest, dict(self._counted())
        for (task, name), now in counted.items():
            before = self._latest.get((task, name), now if first or task is None else 0)
            # One that has ended may have left its number to another.
            self._sums[name] += now - before if before <= now else now
        # The kernel may leave a process out of the list of those that a thread has started.
        left_out = [
            (task, name)
            for task, name in self._latest.keys() - counted.keys()
            if task is not None and name.startswith("workers_") and task.exists()
        ]
        self._latest = counted | {each: self._latest[each] for each in left_out}

    def _counted(self) -> Counted:
        import resource  # noqa: PLC0415 Windows has none, and no such counts

        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield (None, "span_ns"), self.recorder.now_ns()
        yield (None, "kernel_ns"), round(usage.ru_stime * 1e9)
        quota = quota_periods() or ()
        for name, periods in zip(("quota_periods", "throttled_periods"), quota, strict=False):
            yield (None, name), periods
        trains = self._proc / "thread-self"
        yield from scheduled(trains, "ran_ns", "waited_ns")
        for worker in text_of(trains / "children").split():
            yield from scheduled(self._proc / worker, "workers_ran_ns", "workers_waited_ns")
        for thread in threading.enumerate():
            number = thread.native_id
            if number not in (None, self._trains) and not thread.name.startswith(OWN):
                yield from scheduled(self._proc / f"self/task/{number}", _THREAD + named(thread))


def scheduled(task: Path, *names: str) -> Counted:
    """Nanoseconds that a thread ran, and that it waited for a CPU.

    Nothing where it has ended, or where this system does not count.
    """
    for name, count in zip(names, text_of(task / "schedstat").split(), strict=False):
        yield (task, name), int(count)


def named(thread: threading.Thread) -> str:
    """The package whose class it is; of Python's own class its name, or that of its function."""
    package = type(thread).__module__.partition(".")[0]
    if package not in ("threading", "__main__"):
        return package
    numbered = _NUMBERED.match(thread.name)
    if numbered is None:
        return re.sub(r"[-_]?\d+(?:_\d+)?$", "", thread.name)
    return numbered[1] or "a thread"


def countable(proc: Path = PROC) -> bool:
    """Whether this system counts it, as Linux does unless it was built without."""
    return os.access(proc / "thread-self" / "schedstat", os.R_OK)
