"""Source of a training's batches while changes are tried: they can be held, replayed, rearranged.

It stands between the loop and its loader, and begins that anew in place of the epoch's end.  While
nothing is tried it hands on what comes.
"""

import copy
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import TrialsOver


HELD = 16
"""Batches that are kept at most, to be replayed."""


class BatchSource:
    """The batches of one loop.

    Args:
        loader: What they come from; `None` if unknown.
        ahead: Batches that the loop has fetched before the one it trains on.
    """

    def __init__(self, loader: object = None, ahead: int = 0) -> None:
        self.loader = loader
        self.ahead = ahead
        self._loops: Iterator[Any] = iter(())
        self._replayed: Iterator[Any] | None = None
        self._stream: Iterator[Any] | None = None
        self._make: Callable[[list[Any]], list[Any]] | None = None
        self._pool = 1
        self._ready: deque[Any] = deque()
        self._handed: deque[Any] = deque(maxlen=ahead)
        """What the loop holds ahead, the last of it last."""
        self._over = False
        self.held: deque[Any] = deque(maxlen=HELD)
        """The last batches that the loader gave."""

    def over(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """This source as the iterator of an epoch, in place of the loop's own."""
        self._loops = iterator
        if self._replayed or self._stream:
            # The epoch before has had no end here: what it held ahead was dropped, and comes again.
            self._ready.extendleft(reversed(self._handed))
        self._handed.clear()
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 whatever a loader yields
        if self._over:
            raise TrialsOver
        if not self._ready:
            self._refill()
        batch = self._ready.popleft()
        self._handed.append(batch)
        return batch

    def end(self) -> None:
        """End the process in place of the next batch."""
        self._over = True

    def draw_from(self, stream: Iterator[Any] | None) -> None:
        """Take batches from there; `None` ends that."""
        self._stream = stream
        self._ready.clear()

    def rearrange(self, make: Callable[[list[Any]], list[Any]] | None, pool: int = 1) -> None:
        """Hand on other batches with the same samples; `None` hands them on as they come.

        Args:
            make: From *pool* batches to as many that hold the same samples, e.g. sorted.
            pool: How many batches are rearranged together.
        """
        self._make, self._pool = make, pool
        self._ready.clear()

    def replay_only(self, batches: int) -> None:
        """Hand on the last batches again and again, whatever else is said; 0 ends that."""
        self._replayed = self.replay(batches) if batches else None
        self._ready.clear()

    def replay(self, batches: int) -> Iterator[Any]:
        """The last batches in their order, again and again.

        Raises:
            ConfigError: There is none yet.
        """
        last = list(self.held)[-batches:]
        if not last:
            raise ConfigError("no batch has come yet")
        return itertools.cycle(last)

    def _refill(self) -> None:
        """Fetch what the next batches are made of."""
        batches = [self._fetch()]
        with suppress(StopIteration):  # a loader that cannot be begun anew may end amid a pool
            while len(batches) < self._pool:
                batches.append(self._fetch())
        self._ready.extend(batches if self._make is None else self._make(batches))

    def _fetch(self) -> Any:  # noqa: ANN401 whatever a loader yields
        stream = self._replayed or self._stream
        if stream is not None:
            return next(stream)
        try:
            batch = next(self._loops)
        except StopIteration:
            if not isinstance(self.loader, Iterable):
                raise
            self._loops = iter(self.loader)
            batch = next(self._loops)
        self.held.append(batch)
        return batch


def demand_second_pass(loader: object) -> "DataLoader[Any]":
    """The loader, if there can be another one like it.

    Raises:
        ConfigError: It would take something from the first, or is no `DataLoader`.
    """
    if not isinstance(loader, DataLoader):
        raise ConfigError(f"the loop's batches come from no DataLoader ({type(loader).__name__})")
    if isinstance(loader.dataset, IterableDataset):
        raise ConfigError("an iterable dataset would lose the samples of a second pass")
    return loader


def second_pass(loader: "DataLoader[Any]", workers: int, prefetch: int | None) -> Iterator[Any]:
    """Batches of a second loader with copies of the samplers, without end.

    Args:
        loader: Like which it is; it is left as it is.
        workers: Of the second, which stay from epoch to epoch.
        prefetch: Batches ahead of each of them; `None` without any.

    Raises:
        ConfigError: A sampler cannot be copied.
    """
    second = DataLoader(
        loader.dataset,
        **_order(loader),
        num_workers=workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=prefetch,
        persistent_workers=workers > 0,
    )
    return itertools.chain.from_iterable(itertools.repeat(second))


def _order(loader: "DataLoader[Any]") -> dict[str, Any]:
    """Sampler arguments of a `DataLoader`: a copy, so that the original does not advance.

    It has all of its state, and shares the dataset itself.
    """
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    try:
        own = copy.deepcopy(sampler, {id(loader.dataset): loader.dataset})
    except (TypeError, copy.Error, RuntimeError) as error:
        raise ConfigError(
            f"{type(sampler).__qualname__}: cannot be copied ({error}), and a second pass over it "
            "would advance it; create its iterator in __iter__"
        ) from None
    return (
        {"batch_size": None, "sampler": own}
        if loader.batch_sampler is None
        else {"batch_sampler": own}
    )
