"""Anatomy of a `DataLoader`: what each part of making a batch costs.

Batches are taken from a second loader as fast as they come, so none waits for the loop.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, TypeVar

import msgspec
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from trainperf.audit.loader.probe_loader import loaders, random_state_kept, second
from trainperf.audit.loader.timed_loader import Parcel
from trainperf.audit.nested import walker
from trainperf.audit.stack_frames import definition_line, getitem_line
from trainperf.core.artifacts.loader import LoaderAnatomy, Spread
from trainperf.core.errors import ConfigError
from trainperf.core.machine.clocks import HostClock, monotonic_ns


T = TypeVar("T")

_contents = walker(torch.Tensor, np.ndarray, bytes, bytearray, attributes=True)
"""The parts of a batch that take memory."""

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

    The user's samplers, dataset and random generators end up as they were.  Worker processes are
    started and ended.

    Args:
        loader: A `DataLoader`, or the first one in a mapping or sequence.
        batches: The most batches to time.
        limit_s: Take no further batch after this many seconds from the first one.
        step_s: Time of a step without its data wait: determines `workers_needed`.

    Raises:
        ConfigError: There is no loader, timing it would take something from it, or it yields no
            batch.
    """
    if batches < 1:
        raise ConfigError(f"batches={batches}: must be at least 1; try {BATCHES}")
    first = next(loaders(loader), None)
    if first is None:
        raise ConfigError(
            f"{type(loader).__qualname__}: only a torch.utils.data.DataLoader can be timed"
        )
    begun_ns = monotonic_ns()
    with random_state_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first loader has given them already
        twin = second(first)
        timed = _timed_batches(twin, batches, limit_s, monotonic_ns)
    if not timed:
        raise ConfigError(f"{type(first.dataset).__qualname__}: it yields no batch")
    anatomy = _anatomy(first, twin.num_workers, timed, begun_ns, monotonic_ns())
    if step_s is None:
        return anatomy
    return msgspec.structs.replace(anatomy, workers_needed=anatomy.workers_for(step_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimedBatch:
    parcel: Parcel
    """Emptied."""
    arrived_ns: int
    tensors: int
    size_bytes: int


def _timed_batches(
    loader: "DataLoader[Any]", batches: int, limit_s: float, clock: HostClock
) -> list[_TimedBatch]:
    timed: list[_TimedBatch] = []
    for parcel in _arriving(loader):
        arrived_ns = clock()
        contents, parcel.batch = list(_contents(parcel.batch)), None
        timed.append(
            _TimedBatch(
                parcel=parcel,
                arrived_ns=arrived_ns,
                tensors=sum(isinstance(content, torch.Tensor) for content in contents),
                size_bytes=sum(map(_size, contents)),
            )
        )
        if len(timed) >= batches or arrived_ns - timed[0].arrived_ns > limit_s * 1e9:
            break
    return timed


def _arriving(loader: "DataLoader[Any]") -> Iterator[Parcel]:
    """The batches; in a frame of its own, so that the workers end when it is left."""
    yield from loader


def _size(content: object) -> int:
    if isinstance(content, torch.Tensor | np.ndarray):
        return int(content.nbytes)
    return len(content) if isinstance(content, bytes | bytearray) else 0


def _anatomy(
    loader: "DataLoader[Any]",
    timed_workers: int,
    timed: list[_TimedBatch],
    begun_ns: int,
    ended_ns: int,
) -> LoaderAnatomy:
    """Statistics over the typical batches: a worker's first finds everything cold."""
    first = {batch.parcel.timing.worker: batch for batch in reversed(timed)}
    typical = [batch for batch in timed if batch is not first[batch.parcel.timing.worker]] or timed
    parcels = [batch.parcel for batch in typical]
    timings = [parcel.timing for parcel in parcels]
    transports = [parcel.transport for parcel in parcels if parcel.transport is not None]
    pinnings_ns = [parcel.pinning_ns for parcel in parcels if parcel.pinning_ns is not None]
    return LoaderAnatomy(
        batches=len(typical),
        workers=loader.num_workers,
        timed_workers=timed_workers,
        kind="iterable" if isinstance(loader.dataset, IterableDataset) else "map",
        dataset=type(loader.dataset).__qualname__,
        samples=fmean(timing.samples for timing in timings),
        tensors=fmean(batch.tensors for batch in typical),
        batch_bytes=fmean(batch.size_bytes for batch in typical),
        getitem=_spread([timing.getitem_ns for timing in timings]),
        collate=_spread([timing.collate_ns for timing in timings]),
        transport=_if_any(_spread, [transport.transport_ns for transport in transports]),
        pinning=_if_any(_spread, pinnings_ns),
        packing_s=_if_any(_mean_s, [transport.packing_ns for transport in transports]),
        receiving_s=_if_any(_mean_s, [transport.receiving_ns for transport in transports]),
        interval_s=_if_any(_mean_s, [b.arrived_ns - a.arrived_ns for a, b in pairwise(typical)]),
        start_s=(timed[0].arrived_ns - begun_ns) / 1e9,
        took_s=(ended_ns - begun_ns) / 1e9,
        tensor_s=_tensor_s(monotonic_ns),
        getitem_line=getitem_line(loader.dataset),
        collate_line=definition_line(loader.collate_fn),
    )


def _tensor_s(clock: HostClock) -> float:
    """Mean over some time: a shared processor slows this as much as it slowed the loader."""
    row, repeats, begun_ns = torch.zeros(_SLICES), 0, clock()
    while clock() - begun_ns < _CALIBRATED_NS:
        torch.stack([row[start : start + 1] for start in range(_SLICES)])
        repeats += 1
    return (clock() - begun_ns) / (repeats * _SLICES) / 1e9


def _spread(durations_ns: list[int]) -> Spread:
    p95_ns = float(np.quantile(durations_ns, 0.95))
    return Spread(mean_s=_mean_s(durations_ns), p95_s=p95_ns / 1e9)


def _mean_s(durations_ns: list[int]) -> float:
    return fmean(durations_ns) / 1e9


def _if_any(statistic: Callable[[list[int]], T], durations_ns: list[int]) -> T | None:
    return statistic(durations_ns) if durations_ns else None
