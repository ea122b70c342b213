"""Samples inside the workers of loaders: what each makes of its time, and at which lines.

A worker that this process forks gets a sampling thread of its own before it does anything: by
`os.register_at_fork`, so that no loader is touched.  Now and then it writes what it has seen into a
folder for temporary files, from which the fit takes it over; the folder goes with the fit.  Other
processes that are forked stop their sampler once it is clear that they are no workers.  Workers
that are spawned are not seen.
"""

import atexit
import multiprocessing
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import torch.utils.data._utils.fetch as fetching
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.worker import WorkerInfo

from trainperf.core.artifacts.lines import (
    WORKER_MAKING,
    WORKER_WAITING,
    Place,
    Sample,
    SampledLines,
    SampledStack,
    SampledWorker,
)
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.run_directory import write_atomically
from trainperf.recording.early_lines import Stack
from trainperf.recording.guard import Guard
from trainperf.recording.line_sampler import BUDGET, LineSampler


PART = "worker lines"
LOOKS_FOR_A_WORKER = 100
"""Samples after which a process is no worker if it has not become one: some five seconds."""
MOST_KEPT, MOST_WORKERS = 512, 256
"""Samples of a worker of all epochs, and workers of all loaders."""
_FIRST_WRITE_NS, _MOST_BETWEEN_NS = 250_000_000, 20_000_000_000
_WARM_NS = 10_000_000_000
"""After which the memory of a worker may be compared with what it is later."""
_FETCH = fetching.__file__
_ROLLUP = Path("/proc/self/smaps_rollup")


class WorkerTable(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has written of itself."""

    worker: SampledWorker
    places: tuple[Place, ...]
    stacks: tuple[SampledStack, ...]
    samples: tuple[Sample, ...]


class WorkerLines:
    """Has the workers that this process forks from `start` to `end` on sample themselves."""

    def __init__(self) -> None:
        self._owner = 0
        self._on = False
        self._folder: Path | None = None
        self._gone: dict[tuple[int, int], WorkerTable] = {}
        """Of processes that have ended, by dataset and number."""

    def start(self) -> None:
        """Begin; a second call changes nothing.  Does nothing in a worker, which forks none."""
        if multiprocessing.parent_process() is not None or not hasattr(os, "register_at_fork"):
            return
        if self._owner != os.getpid():
            self._folder, self._gone = None, {}
            if not self._owner:
                guard = Guard()
                before, after = guard.hook(PART, self._forks), guard.hook(PART, self._forked)
                os.register_at_fork(before=before, after_in_child=after)
                atexit.register(self.end)
            self._owner = os.getpid()
        self._on = True

    def forget_the_gone(self) -> None:
        """A fit begins: what is over was not in it."""
        self.collect()
        self._gone.clear()

    def collect(self) -> tuple[WorkerTable, ...]:
        """All that workers have written; those of ended processes are together by number."""
        alive = []
        for file in () if self._folder is None else self._folder.glob("*.json"):
            with suppress(OSError, msgspec.DecodeError):
                table = msgspec.json.decode(file.read_bytes(), type=WorkerTable)
                if psutil.pid_exists(int(file.stem)):
                    alive.append(table)
                else:
                    self._fold(table)
                    file.unlink()
        return (*self._gone.values(), *alive)

    def end(self) -> None:
        """Nobody samples from now on, and the folder goes."""
        if os.getpid() == self._owner:
            self._on = False
            folder, self._folder, self._gone = self._folder, None, {}
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def _fold(self, table: WorkerTable) -> None:
        key = table.worker.dataset, table.worker.worker
        before = self._gone.get(key)
        if before is not None or len(self._gone) < MOST_WORKERS:
            self._gone[key] = table if before is None else _together(before, table)

    def _forks(self) -> None:
        """In this process, before each fork."""
        if self._on and self._folder is None and os.getpid() == self._owner:
            self._folder = Path(tempfile.mkdtemp(prefix="trainperf-workers-"))

    def _forked(self) -> None:
        """In the new process, in its only thread."""
        if self._on and self._folder is not None and os.getppid() == self._owner:
            _Worker(self._folder / f"{os.getpid()}.json").start()


class _Worker:
    """A process that may become a worker."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._sampler = LineSampler(_where, most=MOST_KEPT)
        self._began_ns = monotonic_ns()
        self._wait_ns = _FIRST_WRITE_NS
        self._due_ns = self._began_ns + self._wait_ns
        self._memory: list[tuple[int, int]] = []
        """When its own memory was looked at, and how many bytes that was: first and last."""
        self._next_look_ns = self._began_ns + _WARM_NS

    def start(self) -> None:
        """Begin to sample this thread."""
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
            write_atomically(self._file, msgspec.json.encode(self._table(info)))
        except OSError:  # the fit is over, or the disk is full
            return False
        self._sampler.cost_ns += monotonic_ns() - now_ns
        return True

    def _table(self, info: WorkerInfo) -> WorkerTable:
        sampler, seen_us = self._sampler, {WORKER_MAKING: 0, WORKER_WAITING: 0}
        stacks, samples = tuple(sampler.stacks.stacks), tuple(sampler.samples)
        for sample in samples:
            seen_us[stacks[sample.stack].slot] += sample.stands_for_us
        looks = self._memory or [(0, 0)]
        (first_ns, first), (last_ns, last) = looks[0], looks[-1]
        return WorkerTable(
            worker=SampledWorker(
                worker=info.id,
                of=info.num_workers,
                dataset=id(info.dataset),
                iterable=isinstance(info.dataset, IterableDataset),
                making_s=sampler.every * seen_us[WORKER_MAKING] / 1e6,
                waiting_s=sampler.every * seen_us[WORKER_WAITING] / 1e6,
                samples=sampler.taken,
                cost_s=sampler.cost_ns / 1e9,
                own_bytes=(first, last),
                between_s=(last_ns - first_ns) / 1e9,
            ),
            places=sampler.stacks.places(),
            stacks=stacks,
            samples=samples,
        )


def _own_bytes() -> int:
    """Memory that this process has written to and shares with nobody; 0 where nothing tells.

    Pages of a file that is mapped to be read are not in it.
    """
    try:
        dirty = re.search(r"Private_Dirty: *(\d+) kB", _ROLLUP.read_text())
    except OSError:
        return 0
    return 1024 * int(dirty[1]) if dirty else 0


def _together(before: WorkerTable, after: WorkerTable) -> WorkerTable:
    """Two processes that were the same worker, one after the other: of the second the memory."""
    earlier, later = before.worker, after.worker
    worker = msgspec.structs.replace(
        later,
        making_s=earlier.making_s + later.making_s,
        waiting_s=earlier.waiting_s + later.waiting_s,
        samples=earlier.samples + later.samples,
        cost_s=earlier.cost_s + later.cost_s,
    )
    if len(before.samples) >= MOST_KEPT:
        return msgspec.structs.replace(before, worker=worker)
    place, stack = len(before.places), len(before.stacks)
    return WorkerTable(
        worker=worker,
        places=before.places + after.places,
        stacks=before.stacks + tuple(_moved(each, place) for each in after.stacks),
        samples=before.samples
        + tuple(msgspec.structs.replace(each, stack=stack + each.stack) for each in after.samples),
    )


def _moved(stack: SampledStack, places: int) -> SampledStack:
    """The same where so many places come before its own."""
    return msgspec.structs.replace(
        stack, frames=tuple(at + places if at >= 0 else at for at in stack.frames)
    )


def joined(lines: SampledLines, tables: Iterable[WorkerTable]) -> SampledLines:
    """The lines of a fit with those of its workers, whose slots tell them apart."""
    places, stacks, samples = [*lines.places], [*lines.stacks], [*lines.samples]
    workers = []
    for table in tables:
        place, stack = len(places), len(stacks)
        places += table.places
        stacks += [_moved(each, place) for each in table.stacks]
        samples += [
            msgspec.structs.replace(each, stack=stack + each.stack) for each in table.samples
        ]
        workers.append(table.worker)
    return msgspec.structs.replace(
        lines,
        places=tuple(places),
        stacks=tuple(stacks),
        samples=tuple(samples),
        workers=tuple(workers),
    )


def _where(stack: Stack) -> tuple[str, int, Stack]:
    """Whether a worker makes a batch, and what of it; or waits to be asked for one."""
    files = [code.co_filename for code, _ in stack]
    if _FETCH not in files:
        return WORKER_WAITING, -1, []
    return WORKER_MAKING, -1, stack[: files.index(_FETCH)]


WORKER_LINES = WorkerLines()
"""Of this process."""
