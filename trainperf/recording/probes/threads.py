"""Processor time of Python's other threads: loggers that write in a thread of their own, and such.

A callback that hands its work to a thread has not got rid of it: what runs Python there keeps the
interpreter from the training, and what does not may take a core from it.  TensorBoard's writer
computes its checksums byte by byte in Python.
"""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Recorder
from trainperf.recording.schedule import CostLimit


TASKS = Path("/proc/self/task")
"""Of every thread of this process a folder; its `schedstat` begins with the nanoseconds it ran."""
OWN = "trainperf"
"""Our threads' names begin with it."""
LEAST_NS = 500_000_000
"""Between two readings; what a thread does after the last one before it ends is not counted."""

_NUMBERED = re.compile(r"^Thread-\d+(?: \((.+)\))?$")


class ThreadsProbe(Probe):
    """Reads how long each thread of Python but the training one has computed since the fit began.

    Linux only: elsewhere nothing is read.

    Args:
        tasks: What the kernel says of the threads.
        clock: Of its own cost.
    """

    name = "threads"

    def __init__(self, tasks: Path = TASKS, clock: HostClock = monotonic_ns) -> None:
        self._tasks = tasks
        self._clock = clock
        self._limit = CostLimit(least_ns=LEAST_NS)
        self._threads: dict[int, tuple[str, int, int]] = {}
        """Name, and what each had computed when it was read first and last."""
        self._ended_ns: Counter[str] = Counter()

    def attach(self, recorder: Recorder) -> None:
        """Begin with what the threads have done by now."""
        super().attach(recorder)
        self._trains = threading.get_native_id()
        self._threads = {number: (name, busy, busy) for number, name, busy in self._read()}

    def seal(self) -> None:
        """Read, if it is due.  Every flush."""
        begun = self._clock()
        if begun >= self._limit.next_ns:
            self.read()
            self._limit.done(begun, self._clock() - begun)

    def read(self) -> dict[str, int]:
        """Thread to the nanoseconds it computed since the fit began; those of one name together."""
        present = {number: (name, busy_ns) for number, name, busy_ns in self._read()}
        threads: dict[int, tuple[str, int, int]] = {}
        for number, (name, first_ns, latest_ns) in self._threads.items():
            if present.get(number, ("", -1))[1] >= latest_ns:
                threads[number] = name, first_ns, present.pop(number)[1]
            elif latest_ns > first_ns:  # it has ended, and its number may be another's
                self._ended_ns[name] += latest_ns - first_ns
        threads |= {number: (name, 0, busy_ns) for number, (name, busy_ns) in present.items()}
        self._threads = threads
        total = Counter(self._ended_ns)
        for name, first_ns, latest_ns in threads.values():
            total[name] += latest_ns - first_ns
        return dict(total)

    def _read(self) -> Iterator[tuple[int, str, int]]:
        for thread in threading.enumerate():
            number = thread.native_id
            if number is None or number == self._trains or thread.name.startswith(OWN):
                continue
            try:
                text = (self._tasks / str(number) / "schedstat").read_bytes()
            except OSError:  # it has ended, or this system does not count
                continue
            yield number, named(thread), int(text.split()[0])


def named(thread: threading.Thread) -> str:
    """The package whose class it is; of Python's own class its name, or that of its function."""
    package = type(thread).__module__.partition(".")[0]
    if package not in ("threading", "__main__"):
        return package
    numbered = _NUMBERED.match(thread.name)
    return (
        (numbered[1] or "a thread") if numbered else re.sub(r"[-_]?\d+(?:_\d+)?$", "", thread.name)
    )
