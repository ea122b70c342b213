"""Which part of making a batch costs how much?

Batches are taken from a second loader as fast as they come, so none waits for the loop.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from trainperf.audit.loader.probe_loader import loaders, random_state_kept, second
from trainperf.audit.loader.source_lines import getitem_line, line_of
from trainperf.audit.loader.timed_loader import Parcel
from trainperf.audit.nested import walker
from trainperf.core.artifacts.loader import LoaderAnatomy, Spread
from trainperf.core.errors import ConfigError
from trainperf.core.machine.clocks import HostClock, monotonic_ns


_contents = walker(torch.Tensor, np.ndarray, bytes, bytearray, attributes=True)
"""What takes room in a batch."""

BATCHES, LIMIT_S = 32, 2.0

_SLICES, _CALIBRATED_NS = 64, 30_000_000


def loader_anatomy(
    loader: object,
    batches: int = BATCHES,
    *,
    limit_s: float = LIMIT_S,
    step_s: float | None = None,
) -> LoaderAnatomy:
    """Time the parts of a batch on a second loader like *loader*, which is not touched.

    The user's samplers, dataset and random generators are afterwards as they were.  Worker
    processes are started, and ended.

    Args:
        loader: A `DataLoader`, or a mapping or sequence with one in it, of which the first counts.
        batches: Look at so many at most.
        limit_s: Take no further batch after so many seconds from the first one on.
        step_s: Time of a step without its wait for data: tells `workers_needed`.

    Raises:
        ConfigError: There is no such loader, it cannot be looked into without taking something
            from it, or it gave no batch.
    """
    if batches < 1:
        raise ConfigError(f"batches={batches}: must be at least 1; try {BATCHES}")
    first = next(loaders(loader), None)
    if first is None:
        raise ConfigError(
            f"{type(loader).__qualname__}: only a torch.utils.data.DataLoader can be looked into"
        )
    begun = monotonic_ns()
    with random_state_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first loader has given them already
        twin = second(first)
        looked = _look(twin, batches, limit_s, monotonic_ns)
    if not looked:
        raise ConfigError(f"{type(first.dataset).__qualname__}: it gave no batch to look at")
    found = _summed(first, twin.num_workers, looked, begun, monotonic_ns())
    if step_s is None:
        return found
    return msgspec.structs.replace(found, workers_needed=found.workers_for(step_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One batch."""

    parcel: Parcel
    got_ns: int
    tensors: int
    size: int
    first: bool = field(default=False)
    """Of its worker."""


def _look(loader: "DataLoader[Any]", batches: int, limit_s: float, clock: HostClock) -> list[_Look]:
    looked: list[_Look] = []
    workers: set[int] = set()
    for parcel in _arriving(loader):
        got_ns = clock()
        contents = list(_contents(parcel.batch))
        worker = parcel.made.worker
        looked.append(
            _Look(
                parcel=Parcel(None, parcel.made, parcel.sent, parcel.pinning_ns),
                got_ns=got_ns,
                tensors=sum(isinstance(one, torch.Tensor) for one in contents),
                size=sum(map(_size, contents)),
                first=worker not in workers,
            )
        )
        workers.add(worker)
        if len(looked) >= batches or got_ns - looked[0].got_ns > limit_s * 1e9:
            break
    return looked


def _arriving(loader: "DataLoader[Any]") -> Iterator[Parcel]:
    """With its own frame, so that the workers end when it is left."""
    yield from loader


def _size(content: object) -> int:
    if isinstance(content, torch.Tensor | np.ndarray):
        return int(content.nbytes)
    return len(content) if isinstance(content, bytes | bytearray) else 0


def _summed(
    loader: "DataLoader[Any]", timed_workers: int, looked: list[_Look], begun: int, ended: int
) -> LoaderAnatomy:
    """Of the batches that are typical: a worker's first finds everything cold."""
    used = [look for look in looked if not look.first] or looked
    made = [look.parcel.made for look in used]
    sent = [look.parcel.sent for look in used if look.parcel.sent is not None]
    pinned = [look.parcel.pinning_ns for look in used if look.parcel.pinning_ns is not None]
    arrived = [look.got_ns for look in used]
    return LoaderAnatomy(
        batches=len(used),
        workers=loader.num_workers,
        timed_workers=timed_workers,
        kind="iterable" if isinstance(loader.dataset, IterableDataset) else "map",
        dataset=type(loader.dataset).__qualname__,
        samples=fmean(one.samples for one in made),
        tensors=fmean(look.tensors for look in used),
        batch_bytes=fmean(look.size for look in used),
        getitem=_spread([one.getitem_ns for one in made]),
        collate=_spread([one.collate_ns for one in made]),
        transport=_spread([one.transport_ns for one in sent]) if sent else None,
        pinning=_spread(pinned) if pinned else None,
        packing_s=fmean(one.packing_ns for one in sent) / 1e9 if sent else None,
        receiving_s=fmean(one.receiving_ns for one in sent) / 1e9 if sent else None,
        interval_s=_interval_s(arrived),
        start_s=(looked[0].got_ns - begun) / 1e9,
        took_s=(ended - begun) / 1e9,
        tensor_s=_tensor_s(monotonic_ns),
        getitem_line=getitem_line(loader.dataset),
        collate_line=line_of(loader.collate_fn),
    )


def _tensor_s(clock: HostClock) -> float:
    """The mean over some time: whoever shares the processor slows this as it did the loader."""
    row, times, begun = torch.zeros(_SLICES), 0, clock()
    while clock() - begun < _CALIBRATED_NS:
        torch.stack([row[place : place + 1] for place in range(_SLICES)])
        times += 1
    return (clock() - begun) / (times * _SLICES) / 1e9


def _interval_s(arrived: list[int]) -> float | None:
    return (arrived[-1] - arrived[0]) / (len(arrived) - 1) / 1e9 if len(arrived) > 1 else None


def _spread(spent_ns: list[int]) -> Spread:
    return Spread(mean_s=fmean(spent_ns) / 1e9, p95_s=float(np.quantile(spent_ns, 0.95)) / 1e9)
