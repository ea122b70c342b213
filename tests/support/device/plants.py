"""What is planted in the device, and what it tells of the truth.

Every plant lasts until `unplant`; the fixture of the tests on the device calls it behind each test.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from support.device.build import extension
from support.device.frontend import NAME, Place, index_of


@dataclass(frozen=True, slots=True)
class Span:
    """A kernel or a copy as the device ran it, in nanoseconds of its clock."""

    name: str
    stream: int
    begin_ns: int
    end_ns: int

    @property
    def ms(self) -> float:
        """How long it lasted."""
        return (self.end_ns - self.begin_ns) / 1e6


def work(ms: float, device: Place = None) -> None:
    """Queue a kernel that lasts *ms* on the current stream."""
    extension().work(index_of(device), ms)


def slow_operator(name: str, ms: float, device: Place = None) -> None:
    """Let every kernel of an operator (``aten::mm``) last *ms* or longer."""
    extension().plant_operator(index_of(device), name, ms)


def slow_stream(stream: torch.Stream, ms: float) -> None:
    """Let everything on a stream last *ms* or longer."""
    extension().plant_stream(stream.device.index, stream.stream_id, ms)


def slow_copies(bytes_per_s: float = 0, latency_ms: float = 0.0, device: Place = None) -> None:
    """Give the copy engines between host and device a rate and a latency; 0 bytes/s is no limit."""
    extension().plant_copies(index_of(device), int(bytes_per_s), latency_ms)


def slow_launches(ms: float = 0.0, queue_depth: int = 0, device: Place = None) -> None:
    """Let a launch keep the host busy, and block where so many wait already; 0 is no limit."""
    extension().plant_launches(index_of(device), ms, queue_depth)


def failing_operator(name: str, message: str = "planted", device: Place = None) -> None:
    """Let the next kernel of an operator fail: heard where the host looks, as on CUDA."""
    extension().plant_error(index_of(device), name, message)


def memory_limit(limit_bytes: int, device: Place = None) -> None:
    """Let the allocator reserve no more than this."""
    extension().set_memory_limit(index_of(device), limit_bytes)


def paging(above_bytes: int, ms: float, device: Place = None) -> None:
    """Let every kernel last *ms* or longer that is launched while tensors use more than this.

    As where a driver moves pages to the host instead of refusing memory.
    """
    extension().plant_pages(index_of(device), above_bytes, ms)


DEFAULT_LIMIT_BYTES = 4 << 30


def unplant() -> None:
    """Take every plant out, also what is queued of them, and let a failed device work again."""
    backend = extension()
    backend.refuse_syncs(False)
    backend.let_go()
    for index in range(backend.device_count()):
        backend.unplant(index)
        backend.set_memory_limit(index, DEFAULT_LIMIT_BYTES)


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Let every synchronisation raise, whoever asks for it."""
    extension().refuse_syncs(True)
    try:
        yield
    finally:
        extension().refuse_syncs(False)


@contextmanager
def counted_synchronisations() -> Iterator[dict[str, int]]:
    """Fill the dictionary with the number of synchronisations of each kind, at the end."""
    extension().reset_sync_counts()
    counts: dict[str, int] = {}
    try:
        yield counts
    finally:
        counts.update(extension().sync_counts())


@contextmanager
def recorded_spans(device: Place = None) -> Iterator[list[Span]]:
    """Fill the list with what the device ran, at the end, when all of it has run."""
    index = index_of(device)
    extension().record_spans(index, True)
    spans: list[Span] = []
    try:
        yield spans
    finally:
        extension().drain()
        spans.extend(Span(*row) for row in extension().spans(index))
        extension().record_spans(index, False)


class Graph:
    """What was queued while the current stream captured; runs again at each replay."""

    def __init__(self) -> None:
        self._graph: object | None = None

    @contextmanager
    def capture(self, capture_error_mode: str = "global") -> Iterator[None]:
        """Capture on a stream of its own; nothing runs meanwhile, and nothing may be asked.

        In the mode *thread_local* by no call of this thread, else of any.
        """
        backend, side = extension(), torch.Stream(device=NAME)
        before = torch.accelerator.current_stream(side.device.index)
        torch.accelerator.set_stream(side)
        backend.begin_capture(side.device.index, capture_error_mode == "thread_local")
        try:
            yield
        finally:
            try:
                self._graph = backend.end_capture(side.device.index)
            finally:
                torch.accelerator.set_stream(before)

    def replay(self, device: Place = None) -> None:
        """Queue it as one launch on the current stream."""
        self._graph.replay(index_of(device))  # type: ignore[attr-defined]
