"""A second loader like the user's, to time batches without taking any from the first.

It has the same dataset, collate function and settings, timed, and copies of the samplers.  It makes
its batches in worker processes even where the first has none, so that the dataset's own state
(caches, random generators, positions) stays as it was.
"""

import copy
import io
import multiprocessing
import random
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from trainperf.audit.loader.timed_loader import (
    Tally,
    TimedItems,
    TimedStream,
    show_users_process,
    timed_collate,
)
from trainperf.audit.nested import walk
from trainperf.core.errors import ConfigError


OF_FABRIC = "_dataloader"
"""Under which name a loader that Fabric has prepared has the one underneath."""

PATIENCE_S = 60.0
"""A worker that takes longer for a batch is given up."""

_DEPTH, _MEMBERS = 3, 64
"""How deep, and in how many members of a container, to look for an open file."""


def loaders(source: object) -> Iterator["DataLoader[Any]"]:
    """The loaders in a source: it, the one under Fabric's, or those of a mapping or sequence."""
    inside = vars(source).get(OF_FABRIC) if hasattr(source, "__dict__") else None
    return walk(source if inside is None else inside, DataLoader)


def second(loader: "DataLoader[Any]") -> "DataLoader[Any]":
    """A loader like *loader* whose batches come in parcels.

    Raises:
        ConfigError: It would take something from the first; the message says what.
    """
    dataset, tally = loader.dataset, Tally()
    workers, context = loader.num_workers, loader.multiprocessing_context
    if not workers and "fork" in multiprocessing.get_all_start_methods():
        # Without forks a new interpreter would run the user's script again.
        workers, context = 1, multiprocessing.get_context("fork")
    if isinstance(dataset, IterableDataset):
        _refuse(dataset, workers)
    kind: Callable[..., TimedItems | TimedStream] = (
        TimedStream if isinstance(dataset, IterableDataset) else TimedItems
    )
    make: Callable[..., DataLoader[Any]] = DataLoader
    return make(
        kind(dataset, tally),
        **order(loader),
        num_workers=workers,
        collate_fn=partial(timed_collate, loader.collate_fn, tally),
        pin_memory=bool(loader.pin_memory) and torch.accelerator.is_available(),
        timeout=(loader.timeout or PATIENCE_S) if workers else 0,
        worker_init_fn=partial(show_users_process, loader.worker_init_fn, loader.num_workers > 0),
        multiprocessing_context=context,
        generator=torch.Generator().manual_seed(0),
        prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
    )


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the global random generators of Python, NumPy and torch, on the host, on exit."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 the user's own
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 the user's own


def _refuse(dataset: "IterableDataset[Any]", workers: int) -> None:
    name = type(dataset).__qualname__
    if not workers:
        raise ConfigError(
            f"{name}: an iterable dataset would lose the samples that are timed, because this "
            "process cannot be forked; try num_workers=1"
        )
    if _holds_open_file(dataset, _DEPTH):
        raise ConfigError(
            f"{name}: holds an open file, whose position all processes share, so it would lose "
            "the samples that are timed; open the file in __iter__"
        )


def order(loader: "DataLoader[Any]") -> dict[str, Any]:
    """Sampler arguments of a `DataLoader`: copies, so that the originals do not advance."""
    if isinstance(loader.dataset, IterableDataset):
        size = getattr(loader.batch_sampler, "batch_size", loader.batch_size)
        return {"batch_size": size, "drop_last": loader.drop_last}
    if loader.batch_sampler is not None:
        return {"batch_sampler": _copied(loader.batch_sampler, loader.dataset)}
    return {"batch_size": None, "sampler": _copied(loader.sampler, loader.dataset)}


def _copied(sampler: object, dataset: object) -> object:
    """A copy with all of its state, sharing the dataset itself."""
    try:
        return copy.deepcopy(sampler, {id(dataset): dataset})
    except (TypeError, copy.Error, RuntimeError) as error:
        raise ConfigError(
            f"{type(sampler).__qualname__}: cannot be copied ({error}), and a second pass over it "
            "would advance it; create its iterator in __iter__"
        ) from None


def _holds_open_file(value: object, depth: int) -> bool:
    """Whether an open file or socket is reachable from it."""
    if isinstance(value, io.IOBase | socket.socket):
        return not getattr(value, "closed", False)
    if not depth or isinstance(value, type | ModuleType | torch.Tensor):
        return False
    members = value if isinstance(value, list | tuple) else getattr(value, "__dict__", {}).values()
    if isinstance(value, Mapping):
        members = value.values()
    return any(_holds_open_file(member, depth - 1) for member in islice(members, _MEMBERS))
