"""Bucketing: batches of sequences of similar length, for less padding without packing."""

import math
import random
from collections.abc import Iterator, Sequence

from torch.utils.data import Sampler

from trainperf.core.errors import ConfigError


class BucketedBatches(Sampler[list[int]]):
    """Batches of neighbours in length, in random order: `DataLoader(batch_sampler=…)`.

    Every epoch shuffles all sequences, cuts the order into pools of *pool* batches, sorts each
    pool by length and shuffles the batches.  So each sequence comes exactly once an epoch (a last
    short batch is kept), batches differ from epoch to epoch, and a larger pool pads less but mixes
    less.  It is one rank's sampler: under DDP give each rank its own sequences, and Lightning's
    `Trainer` `use_distributed_sampler=False`.

    Args:
        lengths: Of every sequence of the dataset, in its order, e.g. in tokens.
        batch_size: Sequences in a batch.
        pool: Batches whose sequences are sorted together.
        seed: Of the order; the same seed and epoch give the same batches.

    Raises:
        ConfigError: A value is refused; the message says which.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, *, pool: int = 50, seed: int = 0
    ) -> None:
        for name, value in (("batch_size", batch_size), ("pool", pool)):
            if value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")
        self._lengths = list(lengths)
        self._batch_size = batch_size
        self._pool = pool
        self._seed = seed
        self._epoch = 0

    @property
    def sampler(self) -> "BucketedBatches":
        """Itself: Lightning tells the epoch to the sampler *inside* of a batch sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the order; Lightning calls it, in a plain loop call it before each epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        return math.ceil(len(self._lengths) / self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        shuffle = random.Random(f"{self._seed} {self._epoch}")  # noqa: S311 an order, no secret
        order = shuffle.sample(range(len(self._lengths)), len(self._lengths))
        size = self._pool * self._batch_size
        batches: list[list[int]] = []
        for start in range(0, len(order), size):
            pooled = sorted(order[start : start + size], key=self._lengths.__getitem__)
            batches += [
                pooled[first : first + self._batch_size]
                for first in range(0, len(pooled), self._batch_size)
            ]
        shuffle.shuffle(batches)
        return iter(batches)
