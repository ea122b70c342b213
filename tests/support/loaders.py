"""Datasets with planted costs that know by a clock of their own what they cost."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.utils.data import Dataset, IterableDataset, default_collate


class Naps:
    """Sleeps, in any process, and adds up how long by a clock of its own."""

    def __init__(self, length_s: float) -> None:
        self.length_s = length_s
        self._slept = torch.zeros(2, dtype=torch.float64).share_memory_()

    def __call__(self) -> None:
        """Sleep once."""
        begun = time.perf_counter()
        time.sleep(self.length_s)
        self._slept += torch.tensor([time.perf_counter() - begun, 1.0])

    @property
    def mean_s(self) -> float:
        """Of all naps so far."""
        total_s, number = self._slept.tolist()
        return float(total_s / number)


class Rows(Dataset[torch.Tensor]):
    """Numbers, each after a nap."""

    def __init__(self, nap: Naps | None = None, number: int = 10_000, width: int = 4) -> None:
        self.nap = nap
        self.number = number
        self.width = width

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, key: int) -> torch.Tensor:
        if self.nap is not None:
            self.nap()
        return torch.full((self.width,), float(key))


class Whole(Rows):
    """All samples of a batch after one nap."""

    def __getitems__(self, keys: Sequence[int]) -> list[torch.Tensor]:
        assert self.nap is not None
        self.nap()
        return [torch.full((self.width,), float(key)) for key in keys]


class Stream(IterableDataset[torch.Tensor]):
    """Numbers that come in turn, each after a nap; those that were given do not come again."""

    def __init__(self, nap: Naps | None = None, number: int = 10_000) -> None:
        self.nap = nap
        self.numbers = iter(range(number))

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in self.numbers:
            if self.nap is not None:
                self.nap()
            yield torch.full((4,), float(number))


class FromFile(IterableDataset[str]):
    """Lines of a file that is open from the beginning."""

    def __init__(self, path: Path) -> None:
        self.source = {"lines": path.open()}

    def __iter__(self) -> Iterator[str]:
        yield from self.source["lines"]


class Slowly:
    """The default collate function after a nap."""

    def __init__(self, nap: Naps) -> None:
        self.nap = nap

    def __call__(self, samples: list[Any]) -> Any:
        """Runs in the worker."""
        self.nap()
        return default_collate(samples)


class Heavy:
    """A batch that naps while it is packed, and while it is unpacked; it knows how long."""

    napped_s: ClassVar[list[tuple[float, float]]] = []
    """In the worker and in this process, of the batches that have arrived."""

    def __init__(self, packing_s: float, unpacking_s: float) -> None:
        self.lengths_s = (packing_s, unpacking_s)

    def __reduce__(self) -> Any:
        packing_s, unpacking_s = self.lengths_s
        return _unpack, (_nap_s(packing_s), unpacking_s)


def _nap_s(length_s: float) -> float:
    begun = time.perf_counter()
    time.sleep(length_s)
    return time.perf_counter() - begun


def _unpack(packed_s: float, length_s: float) -> Heavy:
    Heavy.napped_s.append((packed_s, _nap_s(length_s)))
    return Heavy(packed_s, length_s)


class AllHeavy:
    """A collate function that makes heavy batches of anything."""

    def __init__(self, packing_s: float, unpacking_s: float) -> None:
        self.lengths_s = (packing_s, unpacking_s)

    def __call__(self, samples: object) -> Heavy:
        """Runs in the worker."""
        return Heavy(*self.lengths_s)
