"""Prefetching: copies the next batch to the device during the current step, on its own stream."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import torch

from trainperf.core.errors import ConfigError


B = TypeVar("B")


class DevicePrefetcher(Generic[B]):
    """Batches of *loader* on *device*, each copied while the one before is computed.

    Worth it where the copy is exposed: pin the loader's memory, or it is not asynchronous.  It
    costs the memory of one more batch.  Where there is nothing to overlap (a CPU) batches pass
    through with `Tensor.to`.

    The compute stream waits for the copy, not the host.  A batch's memory is not given back to
    the allocator of the copy stream before the compute stream has passed (`record_stream`), and
    the host's batch is kept until its copy is done, also where the loop ends early.

    A batch's own `to(device, non_blocking=True)` is used where it has one; what is no tensor passes
    through.  It is no `DataLoader`: a sampler is told its epoch before it is wrapped.

    Args:
        loader: Yields tensors, mappings, lists, tuples and named tuples of them, or objects with
            `to` and `record_stream` of their own.
        device: Where to.
    """

    def __init__(self, loader: Iterable[B], device: torch.device | str) -> None:
        self._loader = loader
        self._device = torch.device(device)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[B]:
        if self._device.type != "cuda":
            return (_moved(batch, self._device) for batch in self._loader)
        return self._overlapped()

    def _overlapped(self) -> Iterator[B]:
        copies = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        held: deque[tuple[B, torch.cuda.Event]] = deque()
        try:
            yield from self._ahead(copies, held)
        finally:
            # Only copies are waited for; the steps that use them go on.
            for _, done in held:
                done.synchronize()

    def _ahead(
        self, copies: torch.cuda.Stream, held: "deque[tuple[B, torch.cuda.Event]]"
    ) -> Iterator[B]:
        """Each batch once the copy of the next has begun; *held* are those still being copied."""
        coming: tuple[B, torch.cuda.Event] | None = None
        for batch in self._loader:
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            held.append((batch, done))
            with torch.cuda.stream(copies):
                copied = _moved(batch, self._device)
                done.record(copies)
            if coming is not None:
                yield self._handed_over(*coming)
            coming = copied, done
            while held and held[0][1].query():  # type: ignore[no-untyped-call]
                held.popleft()
        if coming is not None:
            yield self._handed_over(*coming)

    def _handed_over(self, copied: B, done: torch.cuda.Event) -> B:
        """Hand a batch to the compute stream."""
        compute = torch.cuda.current_stream(self._device)
        compute.wait_event(done)
        _record(copied, compute)
        return copied


def _moved(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 whatever a loader yields
    if callable(getattr(batch, "to", None)):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: _moved(value, device) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_moved(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_moved(value, device) for value in batch)
    return batch


def _record(batch: object, stream: torch.cuda.Stream) -> None:
    """Say to the allocator that *stream* uses every tensor in it."""
    if isinstance(batch, torch.Tensor):
        if batch.is_cuda:
            batch.record_stream(stream)
    elif isinstance(batch, Mapping | list | tuple):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            _record(value, stream)
    elif callable(getattr(batch, "record_stream", None)):
        batch.record_stream(stream)  # type: ignore[attr-defined]  # it is there
    elif callable(getattr(batch, "to", None)):
        raise ConfigError(
            f"{type(batch).__qualname__}: has `to` but no `record_stream`, so its memory could be "
            "used again too early; yield tensors, or give it that method"
        )
