"""Samples inside the workers of loaders: what each makes of its time, and at which lines.

A worker that this process forks gets a sampling thread of its own before it does anything: by
`os.register_at_fork`, so that no loader is touched.  Now and then it writes what it has seen into a
folder for temporary files, from which the fit takes it over.  Other processes that are forked stop
their sampler once it is clear that they are no workers.  Workers that are spawned are not seen.
"""

import atexit
import os
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
from trainperf.recording.line_sampler import LineSampler


PART = "worker lines"
LOOKS_FOR_A_WORKER = 100
"""Samples after which a process is no worker if it has not become one: some five seconds."""
MOST_KEPT = 2048
"""Samples of a worker."""
_FIRST_WRITE_NS, _MOST_BETWEEN_NS = 500_000_000, 20_000_000_000
_WARM_NS = 10_000_000_000
"""After which the memory of a worker may be compared with what it is later."""
_FETCH = fetching.__file__


class WorkerTable(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has written of itself."""

    worker: SampledWorker
    places: tuple[Place, ...]
    stacks: tuple[SampledStack, ...]
    samples: tuple[Sample, ...]


class WorkerLines:
    """Has the workers that this process forks from `start` on sample themselves."""

    def __init__(self) -> None:
        self._owner = 0
        self._folder: Path | None = None
        self._tables: dict[str, WorkerTable] = {}

    def start(self) -> None:
        """Begin; a second call changes nothing."""
        if not self._owner and hasattr(os, "register_at_fork"):
            self._owner = os.getpid()
            self._folder = Path(tempfile.mkdtemp(prefix="trainperf-workers-"))
            os.register_at_fork(after_in_child=Guard().hook(PART, self._forked))
            atexit.register(self.remove)

    def collect(self) -> tuple[WorkerTable, ...]:
        """All that workers have written so far."""
        for file in () if self._folder is None else self._folder.glob("*.json"):
            with suppress(OSError, msgspec.DecodeError):
                self._tables[file.name] = msgspec.json.decode(file.read_bytes(), type=WorkerTable)
        return tuple(self._tables.values())

    def remove(self) -> None:
        """Take the folder away, in the process that made it; from then on nobody samples."""
        if self._folder is not None and os.getpid() == self._owner:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _forked(self) -> None:
        """In the new process, in its only thread."""
        if self._folder is not None and os.getppid() == self._owner:
            _Worker(self._folder / f"{os.getpid()}.json").start()


class _Worker:
    """A process that may become a worker."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._sampler = LineSampler(_where, most=MOST_KEPT)
        self._wait_ns = self._due_ns = 0
        self._began_ns = monotonic_ns()
        self._first: tuple[int, int] | None = None
        """Bytes of its own once it was warm, and when."""

    def start(self) -> None:
        """Begin to sample this thread."""
        sample = Guard().hook(PART, lambda: self._sampler.sample_until_stopped(self._after))
        self._sampler.start(threading.get_ident(), sample, "trainperf worker lines")

    def _after(self) -> bool:
        """Write if it is time; whether to go on."""
        info, now_ns = get_worker_info(), monotonic_ns()
        if info is None:
            return self._sampler.taken < LOOKS_FOR_A_WORKER
        if now_ns >= self._due_ns:
            self._wait_ns = min(2 * self._wait_ns or _FIRST_WRITE_NS, _MOST_BETWEEN_NS)
            self._due_ns = now_ns + self._wait_ns
            write_atomically(self._file, msgspec.json.encode(self._table(info)))
        return True

    def _table(self, info: WorkerInfo) -> WorkerTable:
        own_bytes, now_ns = psutil.Process().memory_full_info().uss, monotonic_ns()
        first_bytes, first_ns = self._first or (own_bytes, now_ns)
        if now_ns - self._began_ns >= _WARM_NS:
            self._first = first_bytes, first_ns
        sampler, seen_us = self._sampler, {WORKER_MAKING: 0, WORKER_WAITING: 0}
        stacks, samples = tuple(sampler.stacks.stacks), tuple(sampler.samples)
        for sample in samples:
            seen_us[stacks[sample.stack].slot] += sample.stands_for_us
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
                own_bytes=(first_bytes, own_bytes),
                between_s=(now_ns - first_ns) / 1e9,
            ),
            places=sampler.stacks.places(),
            stacks=stacks,
            samples=samples,
        )


def joined(lines: SampledLines, tables: Iterable[WorkerTable]) -> SampledLines:
    """The lines of a fit with those of its workers, whose slots tell them apart."""
    places, stacks, samples = [*lines.places], [*lines.stacks], [*lines.samples]
    workers = []
    for table in tables:
        place, stack = len(places), len(stacks)
        places += table.places
        stacks += [
            msgspec.structs.replace(each, frames=tuple(place + at for at in each.frames))
            for each in table.stacks
        ]
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
