"""Anatomy of a `DataLoader`: what each part of making a batch costs.

Batches are taken from a second loader as fast as they come, so none waits for the loop.
"""

import warnings
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from trainperf.audit.loader.probe_loader import loaders, random_state_kept, second
from trainperf.audit.loader.timed_loader import Parcel
from trainperf.audit.nested import walk
from trainperf.audit.stack_frames import definition_line, getitem_line
from trainperf.core.artifacts.loader import LoaderAnatomy, Spread
from trainperf.core.errors import ConfigError
from trainperf.core.machine.clocks import monotonic_ns


_CONTENTS = (torch.Tensor, np.ndarray, bytes, bytearray)
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
        parcels = list(_parcels(second(first), batches, limit_s))
    if not parcels:
        raise ConfigError(f"{type(first.dataset).__qualname__}: it yields no batch")
    anatomy = _anatomy(first, parcels, begun_ns)
    needed = None if step_s is None else anatomy.workers_for(step_s)
    return msgspec.structs.replace(anatomy, workers_needed=needed)


def _parcels(loader: "DataLoader[Any]", batches: int, limit_s: float) -> Iterator[Parcel]:
    """So many, each with the sizes of its tensors and of the rest for its batch.

    Workers end with the iteration.
    """
    first_ns: int | None = None
    for number, parcel in enumerate(loader, start=1):
        parcel.arrived_ns = monotonic_ns()
        first_ns = first_ns or parcel.arrived_ns
        contents = walk(parcel.batch, *_CONTENTS, attributes=True)
        parcel.batch = [(isinstance(c, torch.Tensor), _size(c)) for c in contents]
        yield parcel
        if number >= batches or parcel.arrived_ns - first_ns > limit_s * 1e9:
            return


def _size(content: object) -> int:
    return int(content.nbytes) if isinstance(content, torch.Tensor | np.ndarray) else len(content)  # type: ignore[arg-type]


def _anatomy(loader: "DataLoader[Any]", parcels: list[Parcel], begun_ns: int) -> LoaderAnatomy:
    """Statistics over the typical batches: a worker's first finds everything cold."""
    cold = {parcel.worker: parcel for parcel in reversed(parcels)}
    typical = [parcel for parcel in parcels if parcel is not cold[parcel.worker]] or parcels
    packing, receiving = _spread(typical, "packing_ns"), _spread(typical, "receiving_ns")
    return LoaderAnatomy(
        batches=len(typical),
        workers=loader.num_workers,
        kind="iterable" if isinstance(loader.dataset, IterableDataset) else "map",
        samples=fmean(parcel.samples for parcel in typical),
        tensors=fmean(sum(is_tensor for is_tensor, _ in parcel.batch) for parcel in typical),
        batch_bytes=fmean(sum(size for _, size in parcel.batch) for parcel in typical),
        getitem=_spread(typical, "getitem_ns") or Spread(mean_s=0.0, p95_s=0.0),
        collate=_spread(typical, "collate_ns") or Spread(mean_s=0.0, p95_s=0.0),
        transport=_spread(typical, "transport_ns"),
        pinning=_spread(typical, "pinning_ns"),
        packing_s=None if packing is None else packing.mean_s,
        receiving_s=None if receiving is None else receiving.mean_s,
        start_s=(parcels[0].arrived_ns - begun_ns) / 1e9,
        tensor_s=_tensor_s(),
        getitem_line=getitem_line(loader.dataset),
        collate_line=definition_line(loader.collate_fn),
    )


def _tensor_s() -> float:
    """Mean over some time: a shared processor slows this as much as it slowed the loader."""
    row, repeats, begun_ns = torch.zeros(_SLICES), 0, monotonic_ns()
    while monotonic_ns() - begun_ns < _CALIBRATED_NS:
        torch.stack([row[start : start + 1] for start in range(_SLICES)])
        repeats += 1
    return (monotonic_ns() - begun_ns) / (repeats * _SLICES) / 1e9


def _spread(parcels: list[Parcel], time: str) -> Spread | None:
    """Mean and 95th percentile of one time; `None` where no batch has it."""
    times_ns = [ns for ns in (getattr(parcel, time) for parcel in parcels) if ns is not None]
    if not times_ns:
        return None
    return Spread(mean_s=fmean(times_ns) / 1e9, p95_s=float(np.quantile(times_ns, 0.95)) / 1e9)
