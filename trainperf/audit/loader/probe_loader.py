"""How is a loader looked into without taking anything from it?  On a second one like it.

The second loader has the same dataset, collate function and settings, timed, and copies of the
samplers.  It makes its batches in worker processes even where the first has none, so that a
dataset's own state (caches, random generators, positions) stays as it was.
"""

import copy
import io
import multiprocessing
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from trainperf.audit.loader.timed_loader import (
    Disguise,
    Tally,
    TimedBatches,
    TimedCollate,
    TimedItems,
    TimedStream,
)
from trainperf.audit.nested import walker
from trainperf.core.errors import ConfigError


loaders: Callable[[object], Iterator["DataLoader[Any]"]] = walker(DataLoader)
"""The loaders in a source: it, or the members of a mapping or sequence."""

PATIENCE_S = 60.0
"""A batch that takes longer in a worker is taken for one that never comes."""

_DEPTH, _MEMBERS = 4, 64
"""How far, and in how many members of a container, an open file is looked for."""


def second(loader: "DataLoader[Any]") -> "DataLoader[Any]":
    """A loader like *loader* whose batches come in parcels.

    Raises:
        ConfigError: It would take something away from the first; the message says what.
    """
    workers, context = _workers(loader)
    _refuse(loader, forked=workers > 0)
    dataset, tally = loader.dataset, Tally()
    timed: TimedItems | TimedStream
    if isinstance(dataset, IterableDataset):
        timed = TimedStream(dataset, tally)
    elif getattr(dataset, "__getitems__", None):
        timed = TimedBatches(dataset, tally)
    else:
        timed = TimedItems(dataset, tally)
    make: Callable[..., DataLoader[Any]] = DataLoader
    return make(
        timed,
        **order(loader),
        num_workers=workers,
        collate_fn=TimedCollate(loader.collate_fn, tally),
        pin_memory=bool(loader.pin_memory) and torch.accelerator.is_available(),
        timeout=(loader.timeout or PATIENCE_S) if workers else 0,
        worker_init_fn=Disguise(loader.worker_init_fn, working=loader.num_workers > 0),
        multiprocessing_context=context,
        generator=torch.Generator().manual_seed(0),
        prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
    )


@contextmanager
def random_state_kept() -> Iterator[None]:
    """The global random generators of this process are afterwards as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 the user's own
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 the user's own


def _workers(loader: "DataLoader[Any]") -> tuple[int, Any]:
    """How many, and how they are started; one where the loader has none, if it can be forked."""
    if loader.num_workers:
        return loader.num_workers, loader.multiprocessing_context
    if "fork" in multiprocessing.get_all_start_methods():
        return 1, multiprocessing.get_context("fork")
    return 0, None  # a new interpreter would run the user's script again


def _refuse(loader: "DataLoader[Any]", *, forked: bool) -> None:
    dataset = loader.dataset
    name = type(dataset).__qualname__
    if isinstance(dataset, IterDataPipe | MapDataPipe):
        raise ConfigError(f"{name}: a data pipe is not looked into; try a Dataset")
    if not isinstance(dataset, IterableDataset):
        return
    if not forked:
        raise ConfigError(
            f"{name}: an iterable dataset would lose the samples that are looked at, since this "
            "process cannot be forked; try num_workers=1"
        )
    if _open(dataset, _DEPTH, set()):
        raise ConfigError(
            f"{name}: it holds an open file, whose position all processes share, so it would lose "
            "the samples that are looked at; open the file in __iter__"
        )


def order(loader: "DataLoader[Any]") -> dict[str, Any]:
    """Which samples make a batch: by copies of the samplers, so that theirs do not move on."""
    if isinstance(loader.dataset, IterableDataset):
        size = getattr(loader.batch_sampler, "batch_size", loader.batch_size)
        return {"batch_size": size, "drop_last": loader.drop_last}
    if loader.batch_sampler is not None:
        return {"batch_sampler": _copied(loader.batch_sampler, loader.dataset)}
    return {"batch_size": None, "sampler": _copied(loader.sampler, loader.dataset)}


def _copied(sampler: object, dataset: object) -> object:
    """With all of its state, but for the dataset itself."""
    try:
        return copy.deepcopy(sampler, {id(dataset): dataset})
    except (TypeError, copy.Error, RuntimeError) as error:
        raise ConfigError(
            f"{type(sampler).__qualname__}: cannot be copied ({error}), and a second pass over it "
            "would move it on; make its iterator in __iter__"
        ) from None


def _open(value: object, depth: int, seen: set[int]) -> bool:
    """Whether a file or socket is open in it, as far as that can be seen."""
    if isinstance(value, io.IOBase | socket.socket):
        return not getattr(value, "closed", False)
    if id(value) in seen or not depth or isinstance(value, type | ModuleType | torch.Tensor):
        return False
    seen.add(id(value))
    return any(_open(member, depth - 1, seen) for member in _members(value))


def _members(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return list(value.values())[:_MEMBERS]
    if isinstance(value, list | tuple):
        return value[:_MEMBERS]
    return list(getattr(value, "__dict__", {}).values())
