"""Prefetching: copies the next batch to the device during the current step, on its own stream."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import torch

from trainperf.accelerators import Ability, Accelerator, accelerator_of
from trainperf.core.errors import ConfigError
from trainperf.core.machine.clocks import TimingEvent


B = TypeVar("B")


class DevicePrefetcher(Generic[B]):
    """Batches of *loader* on *device*, each copied while the one before is computed.

    Worth it where the copy is exposed: pin the loader's memory, or it is not asynchronous.  It
    costs the memory of one more batch.  Where there is nothing to overlap (a CPU, or a device with
    the host's memory) batches pass through with a `Tensor.to` that waits.

    The compute stream waits for the copy, not the host.  A batch's memory is not given back to
    the allocator of the copy stream before the compute stream has passed (`record_stream`), and
    the host's batch is kept until its copy is done, also where the loop ends early.

    A batch's own `to(device, non_blocking=...)` is used where it has one; what is no tensor passes
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
        accelerator = accelerator_of(self._device)
        if accelerator.unified or Ability.EVENTS in accelerator.lacks():
            # Nothing tells when a copy is done, and on MPS one that does not wait reads memory that
            # may have been freed (pytorch#189690).
            return (_moved(batch, self._device, non_blocking=False) for batch in self._loader)
        return self._overlapped(accelerator)

    def _overlapped(self, accelerator: Accelerator) -> Iterator[B]:
        held: deque[tuple[B, TimingEvent]] = deque()
        try:
            yield from self._ahead(accelerator, held)
        finally:
            # Only copies are waited for; the steps that use them go on.
            for _, done in held:
                done.synchronize()

    def _ahead(self, accelerator: Accelerator, held: deque[tuple[B, TimingEvent]]) -> Iterator[B]:
        """Each batch once the copy of the next has begun; *held* are those still being copied."""
        copies = accelerator.stream()
        coming: tuple[B, TimingEvent] | None = None
        for batch in self._loader:
            done = accelerator.event()
            held.append((batch, done))
            with accelerator.on(copies):
                copied = _moved(batch, self._device, non_blocking=True)
                done.record(copies)
            if coming is not None:
                yield _handed_over(accelerator, *coming)
            coming = copied, done
            while held and held[0][1].query():
                held.popleft()
        if coming is not None:
            yield _handed_over(accelerator, *coming)


def _handed_over(accelerator: Accelerator, copied: B, done: TimingEvent) -> B:
    """Hand a batch to the compute stream."""
    compute = accelerator.current_stream()
    compute.wait_event(done)
    _record(copied, compute)
    return copied


def _moved(
    batch: Any,  # noqa: ANN401 whatever a loader yields
    device: torch.device,
    *,
    non_blocking: bool,
) -> Any:  # noqa: ANN401 as above
    if callable(getattr(batch, "to", None)):
        return batch.to(device, non_blocking=non_blocking)
    moved = partial(_moved, device=device, non_blocking=non_blocking)
    if isinstance(batch, Mapping):
        return {name: moved(value) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(moved, batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map(moved, batch))
    return batch


def _record(batch: object, stream: Any) -> None:  # noqa: ANN401 each backend's own
    """Say to the allocator that *stream* uses every tensor in it."""
    if isinstance(batch, torch.Tensor):
        if batch.device.type != "cpu":
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
