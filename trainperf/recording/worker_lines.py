"""Samples inside the workers of loaders: what each makes of its time, and at which lines.

A worker that this process forks gets a sampling thread of its own before it does anything: by
`os.register_at_fork`, so that no loader is touched.  One that is spawned gets it as it loads torch,
where `trainperf run` has launched the training; a callback cannot reach it.  Now and then a worker
writes what it has seen into a folder for temporary files, from which the fit takes it over; the
folder goes with the fit.  Other processes stop their sampler once it is clear that they are no
workers.
"""

import atexit
import multiprocessing
import os
import re
import shutil
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing import connection, queues
from pathlib import Path

import msgspec
import psutil
import torch.utils.data._utils.fetch as fetching
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torch.utils.data._utils.worker import WorkerInfo

from trainperf.core.artifacts.lines import (
    WORKER_HANDING,
    WORKER_MAKING,
    WORKER_STARTING,
    WORKER_WAITING,
    SampledLines,
    SampledStack,
    SampledWorker,
)
from trainperf.core.findings import LIMITS
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.machine.processes import age_s
from trainperf.core.run_directory import write_atomically
from trainperf.recording.early_lines import of_another_process
from trainperf.recording.guard import Guard
from trainperf.recording.line_sampler import BUDGET, LineSampler
from trainperf.recording.probes.contention import scheduled
from trainperf.recording.process_objects import at_fork
from trainperf.recording.returns import Returns
from trainperf.recording.run_identity import samples_of
from trainperf.recording.stacks import Stack, running_in


PART = "worker lines"
_FEEDER = "QueueFeederThread"
LOOKS_FOR_A_WORKER = 100
"""Samples after which a process is no worker if it has not become one: some five seconds."""
MOST_KEPT, MOST_WORKERS = 512, 256
"""Samples of a worker of all epochs, and workers of all loaders."""
_FIRST_WRITE_NS, _MOST_BETWEEN_NS = 250_000_000, 20_000_000_000
_WARM_NS = 10_000_000_000
"""After which the memory of a worker may be compared with what it is later."""
_FETCH, _QUEUES, _WAITS = fetching.__file__, queues.__file__, threading.__file__
_SENDS = (_QUEUES, connection.__file__)
_MAKES = [kind.fetch.__code__ for kind in vars(fetching).values() if hasattr(kind, "fetch")]
"""Code of what makes a batch: of a dataset of either kind."""
_ROLLUP, _TASKS = Path("/proc/self/smaps_rollup"), Path("/proc/self/task")


class WorkerLines:
    """Has workers that begin from `start` to `end` sample themselves."""

    def __init__(self) -> None:
        self._owner = 0
        """The process whose workers do; 0 for none."""
        self._folder: Path | None = None
        self._signals = ""
        self._gone: dict[tuple[int, int], SampledLines] = {}
        """Of processes that have ended, by dataset and number."""
        hook = Guard().hook
        at_fork(before=hook(PART, self._forks), after_in_child=hook(PART, self._forked))
        atexit.register(self.end)

    def start(self, signals: str = "") -> None:
        """Begin; a second call changes nothing.

        Args:
            signals: Folder of the command that has launched this process, and its children with it:
                one that was spawned samples itself, and so do those that a fork server forks.
                Empty as a fit begins: who trains is no worker, whoever has started it.
        """
        if signals and of_another_process():
            begin = Guard().hook(PART, lambda: _Worker(partial(_of_parent, signals), _by_kind))
            begin()
            at_fork(after_in_child=begin)
            return
        if self._owner != os.getpid():
            self._owner, self._folder, self._gone = os.getpid(), None, {}
        self._signals = signals or self._signals
        if self._signals and self._folder is None:
            with suppress(OSError):  # on another machine the command's folder is missing
                folder = _folder_of(self._signals, self._owner)
                folder.mkdir(exist_ok=True)
                self._folder = folder

    def forget_the_gone(self) -> None:
        """A fit begins: what is over was not in it."""
        self.collect()
        self._gone.clear()

    def collect(self) -> tuple[SampledLines, ...]:
        """All that workers have written; those of ended processes are together by number."""
        alive = []
        for file in () if self._folder is None else self._folder.glob("*.json"):
            with suppress(OSError, msgspec.DecodeError):
                table = msgspec.json.decode(file.read_bytes(), type=SampledLines)
                if psutil.pid_exists(int(file.stem)):
                    alive.append(table)
                else:
                    self._fold(table)
                    file.unlink()
        return (*self._gone.values(), *alive)

    def end(self) -> None:
        """Nobody samples from now on, and the folder goes."""
        if os.getpid() == self._owner:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._owner, self._folder, self._gone = 0, None, {}

    def _fold(self, table: SampledLines) -> None:
        (worker,) = table.workers
        key = worker.dataset, worker.worker
        before = self._gone.get(key)
        if before is not None or len(self._gone) < MOST_WORKERS:
            self._gone[key] = table if before is None else _together(before, table)

    def _forks(self) -> None:
        """In this process, before each fork."""
        if self._folder is None and os.getpid() == self._owner:
            self._folder = Path(tempfile.mkdtemp(prefix="trainperf-workers-"))

    def _forked(self) -> None:
        """In the new process, in its only thread."""
        folder = self._folder
        if folder is not None and os.getppid() == self._owner:
            _Worker(lambda: folder)


def _folder_of(signals: str, process: int) -> Path:
    """Where the workers of a process write, below a folder that the command knows."""
    return Path(signals) / f"workers-{process}"


def _of_parent(signals: str) -> Path:
    parent = multiprocessing.parent_process()
    return _folder_of(signals, 0 if parent is None else parent.pid or 0)


class _Worker:
    """A process that may become a worker; this thread of it is sampled from now on.

    Args:
        folder: Gives where it writes, once it is one.
        number: Gives what tells its dataset from others.
    """

    def __init__(
        self, folder: Callable[[], Path], number: Callable[[Dataset[object]], int] = id
    ) -> None:
        self._folder, self._number = folder, number
        self._sampler = LineSampler(_where, most=MOST_KEPT)
        self._batches = Returns(_MAKES)
        began_ns, self._age_s = monotonic_ns(), age_s() or 0.0
        self._wait_ns = _FIRST_WRITE_NS
        self._due_ns = began_ns + _FIRST_WRITE_NS
        self._memory: list[tuple[int, int]] = []
        """When its own memory was looked at, and how many bytes that was: first and last."""
        self._next_look_ns = began_ns + _WARM_NS
        sample = Guard().hook(PART, lambda: self._sampler.sample_until_stopped(self._after))
        self._sampler.start(threading.get_ident(), sample, "trainperf worker lines")

    def _after(self) -> bool:
        """Write if it is time; whether to go on."""
        info, now_ns = get_worker_info(), monotonic_ns()
        if info is None:
            return self._sampler.taken < LOOKS_FOR_A_WORKER
        if now_ns < self._due_ns:
            return True
        self._wait_ns = min(2 * self._wait_ns, _MOST_BETWEEN_NS)
        self._due_ns = now_ns + self._wait_ns
        if now_ns >= self._next_look_ns:
            self._memory[1:] = [(now_ns, _own_bytes())]
            self._next_look_ns = now_ns + int((monotonic_ns() - now_ns) / BUDGET)
        try:
            file = self._folder() / f"{os.getpid()}.json"
            write_atomically(file, msgspec.json.encode(self._table(info)))
        except OSError:  # the fit is over, or the disk is full
            return False
        self._sampler.cost_ns += monotonic_ns() - now_ns
        return True

    def _table(self, info: WorkerInfo) -> SampledLines:
        lines, seen_us = self._sampler.lines(), Counter[str]()
        threads_ns = [*_threads_ns()]
        busiest_ns = max((ran_ns for ran_ns, _ in threads_ns), default=0)
        for sample in lines.samples:
            seen_us[lines.stacks[sample.stack].slot] += lines.every * sample.stands_for_us
        looks = self._memory or [(0, 0)]
        (first_ns, first), (last_ns, last) = looks[0], looks[-1]
        worker = SampledWorker(
            worker=info.id,
            of=info.num_workers,
            dataset=self._number(info.dataset),
            iterable=isinstance(info.dataset, IterableDataset),
            making_s=seen_us[WORKER_MAKING] / 1e6,
            waiting_s=(seen_us[WORKER_WAITING] + seen_us[WORKER_HANDING]) / 1e6,
            handing_s=seen_us[WORKER_HANDING] / 1e6,
            starting_s=self._age_s + seen_us[WORKER_STARTING] / 1e6,
            threads=max(1, sum(ran >= LIMITS.notable * busiest_ns for ran, _ in threads_ns)),
            ran_s=sum(ran_ns for ran_ns, _ in threads_ns) / 1e9,
            lacked_cpu_s=sum(lacked_ns for _, lacked_ns in threads_ns) / 1e9,
            samples=lines.taken,
            cost_s=lines.cost_s,
            own_bytes=(first, last),
            between_s=(last_ns - first_ns) / 1e9,
            batches=self._batches.number,
        )
        return msgspec.structs.replace(lines, workers=(worker,))


def _own_bytes() -> int:
    """Memory that this process has written to and shares with nobody; 0 where nothing tells.

    Pages of a file that is mapped to be read are not in it.
    """
    with suppress(OSError):
        return 1024 * sum(map(int, re.findall(r"Private_Dirty: *(\d+) kB", _ROLLUP.read_text())))
    return 0


def _by_kind(dataset: Dataset[object]) -> int:
    """Of a dataset of which each worker has a copy."""
    return zlib.crc32(f"{type(dataset).__qualname__} {samples_of(dataset)}".encode())


def _threads_ns() -> Iterator[tuple[int, int]]:
    """For how long threads of this process ran, and were ready to and had no CPU.

    Those of Python's own that are not the main one are left out: ours, and that of its queue.
    """
    own = {thread.native_id for thread in threading.enumerate()} - {os.getpid()}
    for task in _TASKS.glob("*"):
        counts = [count for _, count in scheduled(task, "ran", "lacked")]
        if counts and int(task.name) not in own:
            yield counts[0], counts[1]


def _together(before: SampledLines, after: SampledLines) -> SampledLines:
    """Two processes that were the same worker, one after the other: of the second the memory."""
    (earlier,), (later,) = before.workers, after.workers
    worker = msgspec.structs.replace(
        later,
        making_s=earlier.making_s + later.making_s,
        waiting_s=earlier.waiting_s + later.waiting_s,
        handing_s=earlier.handing_s + later.handing_s,
        samples=earlier.samples + later.samples,
        batches=None if later.batches is None else (earlier.batches or 0) + later.batches,
        cost_s=earlier.cost_s + later.cost_s,
    )
    both = before if len(before.samples) >= MOST_KEPT else joined(before, [after])
    return msgspec.structs.replace(both, workers=(worker,))


def joined(lines: SampledLines, others: Iterable[SampledLines]) -> SampledLines:
    """The lines of a fit with those of its workers, whose slots tell them apart."""
    for other in others:
        place, stack = len(lines.places), len(lines.stacks)
        lines = msgspec.structs.replace(
            lines,
            places=lines.places + other.places,
            stacks=lines.stacks + tuple(_further(each, place) for each in other.stacks),
            samples=lines.samples
            + tuple(
                msgspec.structs.replace(each, stack=stack + each.stack) for each in other.samples
            ),
            workers=lines.workers + other.workers,
        )
    return lines


def _further(stack: SampledStack, place: int) -> SampledStack:
    """The stack, its places numbered from there."""
    frames = tuple(at + place if at >= 0 else at for at in stack.frames)
    return msgspec.structs.replace(stack, frames=frames)


def _where(stack: Stack) -> tuple[str, int, Stack]:
    """Whether a worker makes a batch, and what of it; or waits for the next; or is none yet."""
    files = [code.co_filename for code, _ in stack]
    if _FETCH in files:
        return WORKER_MAKING, -1, stack[: files.index(_FETCH)]
    if _QUEUES not in files:
        return WORKER_STARTING, -1, []
    # What the thread of its queue does meanwhile: nothing, pack a batch, or send it.
    feeders = (thread.ident for thread in threading.enumerate() if thread.name == _FEEDER)
    _, stack = running_in(next(feeders, None) or 0)
    files = [code.co_filename for code, _ in stack]
    if not stack or files[0] == _WAITS:
        return WORKER_WAITING, -1, []
    if files[0] in _SENDS:
        return WORKER_HANDING, -1, []
    return WORKER_MAKING, -1, stack[: files.index(_QUEUES)] if _QUEUES in files else stack


WORKER_LINES = WorkerLines()
"""Of this process."""
