"""Timed dataset, collate function and batch: objects that travel into a loader's workers.

A worker's dataset and its collate function share one `Tally`.  The batch leaves the worker in a
`Parcel`, which records when it is packed, when it arrives and how long it is pinned.  All processes
of a machine read the same host clock.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torch.utils.data._utils import worker
from torch.utils.data._utils.pin_memory import pin_memory

from trainperf.core.machine.clocks import monotonic_ns


@dataclass(slots=True)
class Tally:
    """Time in the dataset since the last batch of this process, and its samples."""

    spent_ns: int = 0
    samples: int = 0

    def add(self, spent_ns: int, samples: int = 1) -> None:
        """Add the time of some samples."""
        self.spent_ns += spent_ns
        self.samples += samples

    def take(self) -> tuple[int, int]:
        """Return nanoseconds and samples, and start over."""
        total = (self.spent_ns, self.samples)
        self.spent_ns = self.samples = 0
        return total


class TimedItems(Dataset[Any]):
    """The user's dataset, sample by sample."""

    def __init__(self, dataset: Dataset[Any], tally: Tally) -> None:
        self.dataset = dataset
        self.tally = tally

    def __getitem__(self, key: object) -> object:
        begun = monotonic_ns()
        sample: object = self.dataset[key]
        self.tally.add(monotonic_ns() - begun)
        return sample


class TimedBatches(TimedItems):
    """The user's dataset, which gives all samples of a batch at once."""

    def __getitems__(self, keys: Sequence[object]) -> object:
        begun = monotonic_ns()
        samples: object = self.dataset.__getitems__(keys)  # type: ignore[attr-defined] # it is there
        self.tally.add(monotonic_ns() - begun, len(keys))
        return samples


class TimedStream(IterableDataset[Any]):
    """The user's dataset, whose samples come in turn."""

    def __init__(self, dataset: IterableDataset[Any], tally: Tally) -> None:
        self.dataset = dataset
        self.tally = tally

    def __iter__(self) -> Iterator[Any]:
        begun = monotonic_ns()
        samples = iter(self.dataset)
        while True:
            try:
                sample = next(samples)
            except StopIteration:
                return
            self.tally.add(monotonic_ns() - begun)
            yield sample
            begun = monotonic_ns()


@dataclass(frozen=True, slots=True)
class TimedCollate:
    """The user's collate function; what it makes is put into a parcel."""

    collate: Callable[[Any], Any]
    tally: Tally

    def __call__(self, samples: object) -> "Parcel":
        """Runs for every batch."""
        begun = monotonic_ns()
        batch = self.collate(samples)
        collate_ns = monotonic_ns() - begun
        info = get_worker_info()
        worker_id = 0 if info is None else info.id
        getitem_ns, samples_made = self.tally.take()
        timing = BatchTiming(
            worker=worker_id, samples=samples_made, getitem_ns=getitem_ns, collate_ns=collate_ns
        )
        return Parcel(batch, timing)


@dataclass(frozen=True, slots=True)
class Disguise:
    """Worker init function: shows the user's code the process that it would normally run in."""

    init: Callable[[int], object] | None
    """The user's `worker_init_fn`."""
    working: bool
    """Whether the user's loader has workers at all."""

    def __call__(self, number: int) -> None:
        """Runs once in every worker."""
        if not self.working:
            # In a worker the default collate function makes every tensor in shared memory, and a
            # dataset may take its share only: the training process, which is timed, does neither.
            worker._worker_info = None  # noqa: SLF001 of this process, which ends with the look
            return
        info = get_worker_info()
        timed = info.dataset if info is not None else None
        if isinstance(timed, TimedItems | TimedStream):
            # Read-only for a good reason; but the dataset named there is to be the user's own.
            object.__setattr__(info, "dataset", timed.dataset)
        if self.init is not None:
            self.init(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTiming:
    """Time to make one batch."""

    worker: int
    samples: int
    getitem_ns: int
    collate_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportTiming:
    """Time to bring one batch from its worker."""

    packing_ns: int
    transport_ns: int
    receiving_ns: int


@dataclass(slots=True, eq=False)
class Parcel:
    """A batch on its way, with its timing so far."""

    batch: object
    timing: BatchTiming
    transport: TransportTiming | None = None
    pinning_ns: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Packed in this order: a moment, the batch, a moment; and unpacked in it."""
        return _received, (_Moment(), self.batch, self.timing, _Moment())

    def pin_memory(self) -> "Parcel":
        """Called by the loader, where it pins."""
        begun = monotonic_ns()
        self.batch = pin_memory(self.batch)  # type: ignore[no-untyped-call] # torch has none there
        self.pinning_ns = monotonic_ns() - begun
        return self


class _Moment:
    """Becomes a pair: when it was pickled, and when it was unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _moments, (monotonic_ns(),)


def _moments(packed_ns: int) -> tuple[int, int]:
    return packed_ns, monotonic_ns()


def _received(
    begun: tuple[int, int], batch: object, timing: BatchTiming, ended: tuple[int, int]
) -> Parcel:
    transport = TransportTiming(
        packing_ns=ended[0] - begun[0],
        transport_ns=ended[1] - begun[0],
        receiving_ns=ended[1] - begun[1],
    )
    return Parcel(batch, timing, transport)
