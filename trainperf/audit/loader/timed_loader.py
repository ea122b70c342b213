"""Timed dataset, collate function and batch: objects that travel into a loader's workers.

A worker's dataset and its collate function share one `Tally`.  The batch leaves the worker in a
`Parcel`, which records when it is packed, when it arrives and how long it is pinned.  All processes
of a machine read the same host clock.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torch.utils.data._utils import worker
from torch.utils.data._utils.pin_memory import pin_memory

from trainperf.core.machine.clocks import monotonic_ns


T = TypeVar("T")


@dataclass(slots=True)
class Tally:
    """Time in the dataset since the last batch of this process, and its samples."""

    spent_ns: int = 0
    samples: int = 0

    def timed(self, read: Callable[[], T], samples: int) -> T:
        """What *read* returns, its time added to that of some samples."""
        begun_ns = monotonic_ns()
        result = read()
        self.spent_ns += monotonic_ns() - begun_ns
        self.samples += samples
        return result


class TimedItems(Dataset[Any]):
    """The user's dataset, sample by sample, or all samples of a batch at once."""

    def __init__(self, dataset: Any, tally: Tally) -> None:  # noqa: ANN401 what a loader may have
        self.dataset, self.tally = dataset, tally
        # Torch asks for samples one by one where this is `None`.
        self.__getitems__ = self._batch if getattr(dataset, "__getitems__", None) else None

    def __getitem__(self, key: object) -> object:
        return self.tally.timed(lambda: self.dataset[key], 1)

    def _batch(self, keys: Sequence[object]) -> object:
        return self.tally.timed(partial(self.dataset.__getitems__, keys), len(keys))


class TimedStream(IterableDataset[Any]):
    """The user's dataset, whose samples come in turn."""

    def __init__(self, dataset: IterableDataset[Any], tally: Tally) -> None:
        self.dataset, self.tally = dataset, tally

    def __iter__(self) -> Iterator[Any]:
        samples = self.tally.timed(partial(iter, self.dataset), 0)
        while True:
            try:
                sample = self.tally.timed(partial(next, samples), 1)
            except StopIteration:
                return
            yield sample


def timed_collate(collate: Callable[[Any], Any], tally: Tally, samples: object) -> "Parcel":
    """What the user's collate function makes, in a parcel.  Runs for every batch."""
    begun_ns = monotonic_ns()
    batch = collate(samples)
    parcel = Parcel(
        batch=batch,
        worker=getattr(get_worker_info(), "id", 0),
        samples=tally.samples,
        getitem_ns=tally.spent_ns,
        collate_ns=monotonic_ns() - begun_ns,
    )
    tally.spent_ns = tally.samples = 0
    return parcel


def show_users_process(init: Callable[[int], object] | None, working: bool, number: int) -> None:  # noqa: FBT001 bound by name
    """Show the user's code the process that it would normally run in.  Once in every worker.

    Args:
        init: The user's `worker_init_fn`.
        working: Whether the user's loader has workers at all.
        number: Of the worker.
    """
    info = get_worker_info()
    if not working or info is None:
        # In a worker the default collate function makes every tensor in shared memory, and a
        # dataset may take its share only: the training process, which is timed, does neither.
        worker._worker_info = None  # noqa: SLF001 of this process, which ends with the look
        return
    # Read-only for a good reason; but the dataset named there is to be the user's own.
    object.__setattr__(info, "dataset", info.dataset.dataset)  # type: ignore[attr-defined]
    if init is not None:
        init(number)


@dataclass(slots=True, eq=False)
class Parcel:
    """A batch on its way, with its times so far."""

    batch: Any
    worker: int
    samples: int
    getitem_ns: int
    collate_ns: int
    packing_ns: int | None = None
    transport_ns: int | None = None
    """From the beginning of packing to the end of receiving; `None` where no worker packed it."""
    receiving_ns: int | None = None
    pinning_ns: int | None = None
    arrived_ns: int = 0
    """Host clock, where the batch is taken."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Packed in this order: a moment, the batch, a moment; and unpacked in it."""
        making = (self.worker, self.samples, self.getitem_ns, self.collate_ns)
        return _received, (_Moment(), self.batch, _Moment(), making)

    def pin_memory(self) -> "Parcel":
        """Called by the loader, where it pins."""
        begun_ns = monotonic_ns()
        self.batch = pin_memory(self.batch)  # type: ignore[no-untyped-call] # torch has none there
        self.pinning_ns = monotonic_ns() - begun_ns
        return self


class _Moment:
    """Becomes a pair: when it was pickled, and when it was unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _moments, (monotonic_ns(),)


def _moments(packed_ns: int) -> tuple[int, int]:
    return packed_ns, monotonic_ns()


def _received(
    begun: tuple[int, int], batch: object, ended: tuple[int, int], making: tuple[int, int, int, int]
) -> Parcel:
    return Parcel(
        batch,
        *making,
        packing_ns=ended[0] - begun[0],
        transport_ns=ended[1] - begun[0],
        receiving_ns=ended[1] - begun[1],
    )
