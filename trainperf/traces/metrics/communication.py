"""Communication of each step: total, exposed, and at what bandwidth."""

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
DEVICE_COMM_FIELDS = ("comm_overlap_fraction", "comm_exposed_s", *_TAIL)


def comm_columns(
    table: EventTable,
    steps: StepSpans,
    device: DeviceWork,
    host: HostWork,
    collectives: Collectives,
) -> StepColumns:
    """Communication of each step: kernels on the device, else what the host ran itself."""
    count = len(steps)
    on_host = len(collectives) > 0 and bool((collectives.work == NONE).all())
    if on_host or not len(device):
        times = [
            union(collectives.start[mine], collectives.end[mine]).total
            for mine in (collectives.step == place for place in range(count))
        ]
        on_host_s = seconds(times) if on_host else [None if not len(device) else 0.0] * count
        return {"comm_s": on_host_s, **not_measured(DEVICE_COMM_FIELDS, count)}
    spans = by_step(device, device.used_for(DeviceUse.COMMUNICATION), count)
    total = [each.total for each in spans]
    hidden = overlaps(spans, device.computing)
    return {
        "comm_s": seconds(total),
        "comm_overlap_fraction": share(hidden, total),
        "comm_exposed_s": seconds([all_ - part for all_, part in zip(total, hidden, strict=True)]),
        **_tail_columns(table, steps, device, host, collectives),
    }


def kinds(collectives: Collectives, steps: int, computing: Spans) -> tuple[Collective, ...]:
    """Every kind of collective over the recorded steps, the one that takes longest first.

    Args:
        collectives: The collectives of the trace.
        steps: How many steps were recorded.
        computing: When the device computed.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for place in np.flatnonzero(collectives.step != NONE):
        places[collectives.kind[place]].append(int(place))
    rows = [
        _kind(collectives, kind, np.array(mine), steps, computing) for kind, mine in places.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_s, row.kind)))


def _tail_columns(
    table: EventTable,
    steps: StepSpans,
    device: DeviceWork,
    host: HostWork,
    collectives: Collectives,
) -> StepColumns:
    reduces: Mask = np.zeros(len(device), bool)
    reduces[collectives.work[[kind == ALL_REDUCE for kind in collectives.kind]]] = True
    tail = tails(table, steps, device, host, reduces)
    signed = maybe_seconds(tail.after_backward)
    return {
        "allreduce_tail_s": [None if value is None else max(0.0, value) for value in signed],
        "allreduce_early_s": [None if value is None else max(0.0, -value) for value in signed],
        "allreduce_to_optimizer_s": maybe_seconds(tail.to_optimizer),
    }


def _kind(
    collectives: Collectives,
    kind: str,
    mine: "np.typing.NDArray[np.intp]",
    steps: int,
    computing: Spans,
) -> Collective:
    length = collectives.end[mine] - collectives.start[mine]
    sized = mine[(collectives.bytes[mine] >= 0) & (length > 0)]
    size, time = collectives.bytes[sized], (collectives.end[sized] - collectives.start[sized]) / 1e9
    rate = float(size.sum() / time.sum()) if len(sized) else None
    small = median(size) < SMALL_BYTES if len(sized) else median(length) < SMALL_NS
    return Collective(
        kind=kind,
        count=len(mine),
        total_s=int(length.sum()) / 1e9,
        exposed_s=_exposed_s(collectives, mine, computing),
        bytes=int(size.sum()) if len(sized) else None,
        achieved_bytes_per_s=rate,
        bus_bytes_per_s=_bus(collectives, kind, sized),
        many_small=bool(small and len(mine) >= MANY * steps),
    )


def _exposed_s(
    collectives: Collectives, mine: "np.typing.NDArray[np.intp]", computing: Spans
) -> float | None:
    # What runs beside a collective of the host is not known.
    if (collectives.work[mine] == NONE).any():
        return None
    spans = union(collectives.start[mine], collectives.end[mine])
    return (spans.total - overlaps([spans], computing)[0]) / 1e9


def _bus(collectives: Collectives, kind: str, sized: "np.typing.NDArray[np.intp]") -> float | None:
    """Bytes over the busiest link a second, by the algorithm that moves least.

    `None` for kinds without such a factor, and where the number of ranks is not known.
    """
    ranks = collectives.members[sized]
    twice = {ALL_REDUCE: 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}.get(kind)
    if twice is None or not len(sized) or (ranks < 1).any():
        return None
    time = (collectives.end[sized] - collectives.start[sized]).sum() / 1e9
    return float((collectives.bytes[sized] * twice * (ranks - 1) / ranks).sum() / time)
