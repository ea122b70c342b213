"""How much of each step is communication, how much of it is hidden, and at what bandwidth?"""

from collections import defaultdict

import numpy as np

from trainperf.traces.event_table import NONE, EventTable
from trainperf.traces.metrics.backward import tails
from trainperf.traces.metrics.collectives import ALL_REDUCE, Collectives
from trainperf.traces.metrics.columns import (
    StepColumns,
    by_step,
    maybe_seconds,
    median,
    not_measured,
    seconds,
    share,
)
from trainperf.traces.metrics.device import DeviceUse, DeviceWork
from trainperf.traces.metrics.host import HostWork
from trainperf.traces.metrics.intervals import Spans, overlaps, union
from trainperf.traces.metrics.steps import Mask, StepSpans
from trainperf.traces.results import Collective


MANY = 32
"""Collectives of one kind in a step from which on small ones are many."""

SMALL_BYTES = 1 << 20
SMALL_NS = 100_000
"""Where bytes are not given: a collective below this is mostly latency."""

_TAIL = ("allreduce_tail_s", "allreduce_early_s", "allreduce_to_optimizer_s")
_DEVICE_ONLY = ("comm_overlap_fraction", "comm_exposed_s", *_TAIL)


def comm_columns(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork, found: Collectives
) -> StepColumns:
    """Communication of each step: kernels on the device, else what the host ran itself."""
    count = len(steps)
    on_host = len(found) > 0 and bool((found.work == NONE).all())
    if on_host or not len(device):
        times = [
            union(found.start[mine], found.end[mine]).total
            for mine in (found.step == place for place in range(count))
        ]
        said = seconds(times) if on_host else [None if not len(device) else 0.0] * count
        return {"comm_s": said, **not_measured(_DEVICE_ONLY, count)}
    spans = by_step(device, device.used_for(DeviceUse.COMMUNICATION), count)
    total = [one.total for one in spans]
    hidden = overlaps(spans, device.computing)
    return {
        "comm_s": seconds(total),
        "comm_overlap_fraction": share(hidden, total),
        "comm_exposed_s": seconds([all_ - part for all_, part in zip(total, hidden, strict=True)]),
        **_tail_columns(table, steps, device, host, found),
    }


def kinds(found: Collectives, steps: int, computing: Spans) -> tuple[Collective, ...]:
    """Every kind of collective over the recorded steps, the one that takes longest first.

    Args:
        found: The collectives.
        steps: How many steps were recorded.
        computing: When the device computed.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for place in np.flatnonzero(found.step != NONE):
        places[found.kind[place]].append(int(place))
    rows = [_kind(found, kind, np.array(mine), steps, computing) for kind, mine in places.items()]
    return tuple(sorted(rows, key=lambda row: (-row.total_s, row.kind)))


def _tail_columns(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork, found: Collectives
) -> StepColumns:
    reduces: Mask = np.zeros(len(device), bool)
    reduces[found.work[[kind == ALL_REDUCE for kind in found.kind]]] = True
    tail = tails(table, steps, device, host, reduces)
    signed = maybe_seconds(tail.after_backward)
    return {
        "allreduce_tail_s": [None if one is None else max(0.0, one) for one in signed],
        "allreduce_early_s": [None if one is None else max(0.0, -one) for one in signed],
        "allreduce_to_optimizer_s": maybe_seconds(tail.to_optimizer),
    }


def _kind(
    found: Collectives,
    kind: str,
    mine: "np.typing.NDArray[np.intp]",
    steps: int,
    computing: Spans,
) -> Collective:
    length = found.end[mine] - found.start[mine]
    said = mine[(found.bytes[mine] >= 0) & (length > 0)]
    size, time = found.bytes[said], (found.end[said] - found.start[said]) / 1e9
    rate = float(size.sum() / time.sum()) if len(said) else None
    small = median(size) < SMALL_BYTES if len(said) else median(length) < SMALL_NS
    return Collective(
        kind=kind,
        count=len(mine),
        total_s=int(length.sum()) / 1e9,
        exposed_s=_exposed_s(found, mine, computing),
        bytes=int(size.sum()) if len(said) else None,
        achieved_bytes_per_s=rate,
        bus_bytes_per_s=_bus(found, kind, said),
        many_small=bool(small and len(mine) >= MANY * steps),
    )


def _exposed_s(
    found: Collectives, mine: "np.typing.NDArray[np.intp]", computing: Spans
) -> float | None:
    # What runs beside a collective of the host is not known.
    if (found.work[mine] == NONE).any():
        return None
    spans = union(found.start[mine], found.end[mine])
    return (spans.total - overlaps([spans], computing)[0]) / 1e9


def _bus(found: Collectives, kind: str, said: "np.typing.NDArray[np.intp]") -> float | None:
    """Bytes over the busiest link a second, by the algorithm that moves least.

    `None` for kinds without such a factor, and where the number of ranks is not known.
    """
    ranks = found.members[said]
    twice = {ALL_REDUCE: 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}.get(kind)
    if twice is None or not len(said) or (ranks < 1).any():
        return None
    time = (found.end[said] - found.start[said]).sum() / 1e9
    return float((found.bytes[said] * twice * (ranks - 1) / ranks).sum() / time)
