"""Communication of each step: total, exposed, and at what bandwidth."""

from collections.abc import Iterator
from statistics import median

import numpy as np

from trainperf.core.arrays import Integers, Mask, Places
from trainperf.traces.event_table import NONE, EventTable
from trainperf.traces.metrics.collectives import ALL_REDUCE, Collectives
from trainperf.traces.metrics.device import (
    DeviceUse,
    DeviceWork,
    StepColumns,
    by_step,
    seconds,
    share,
)
from trainperf.traces.metrics.host import HostWork
from trainperf.traces.metrics.spans import Spans, StepSpans, nest, overlaps, present, union
from trainperf.traces.results import Collective, ProcessGroup
from trainperf.traces.thresholds import THRESHOLDS


_LATE = np.iinfo(np.int64).max
_EARLY = np.iinfo(np.int64).min


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
        return {"comm_s": seconds(times)} if on_host else {}
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
    rows = [
        _kind(collectives, kind, mine, steps, computing)
        for kind, mine in _grouped(collectives, collectives.kind)
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_s, row.kind)))


def process_groups(collectives: Collectives, computing: Spans) -> tuple[ProcessGroup, ...]:
    """Every process group that communicated in the recorded steps, the longest first.

    Args:
        collectives: The collectives of the trace.
        computing: When the device computed.
    """
    groups = [
        _group(collectives, name, mine, computing)
        for name, mine in _grouped(collectives, collectives.group)
    ]
    return tuple(sorted(groups, key=lambda group: (-group.total_s, group.name)))


def _grouped(collectives: Collectives, names: list[str]) -> Iterator[tuple[str, Places]]:
    """Each name that a collective of the recorded steps has, and the places of those."""
    recorded = np.flatnonzero(collectives.step != NONE)
    for name in dict.fromkeys(names[place] for place in recorded):
        yield name, recorded[[names[place] == name for place in recorded]]


def _group(collectives: Collectives, name: str, mine: Places, computing: Spans) -> ProcessGroup:
    members = int(collectives.members[mine[0]])
    return ProcessGroup(
        name=name,
        members=members if name and members > 0 else None,
        count=len(mine),
        total_s=union(collectives.start[mine], collectives.end[mine]).total / 1e9,
        exposed_s=_exposed_s(collectives, mine, computing),
    )


def _tail_columns(
    table: EventTable,
    steps: StepSpans,
    device: DeviceWork,
    host: HostWork,
    collectives: Collectives,
) -> StepColumns:
    """End of the last gradient all-reduce against that of the last backward kernel, and the update.

    `None` in a step that has no backward kernel or no all-reduce in backward.  Of kernels only:
    it knows nothing of waiting on the host.
    """
    if not len(steps):
        return {}
    computes = device.kernel & device.used_for(DeviceUse.COMPUTE)
    updating = computes & _launched_by_optimizer(table, steps, device, host)
    first_update = _per_step(np.minimum, device, updating, device.start, len(steps))
    backward = computes & _launched_in_backward(table, device, host)
    last_backward = _per_step(np.maximum, device, backward, device.end, len(steps))
    reduces: Mask = np.zeros(len(device), bool)
    reduces[collectives.work[[kind == ALL_REDUCE for kind in collectives.kind]]] = True
    reduces &= _launched_by_engine(table, steps, device, host)
    reduces &= device.start < first_update[device.step]
    last_reduce = _per_step(np.maximum, device, reduces, device.end, len(steps))
    signed = _between(last_backward, last_reduce)
    return {
        "allreduce_tail_s": [None if value is None else max(0.0, value) for value in signed],
        "allreduce_early_s": [None if value is None else max(0.0, -value) for value in signed],
        "allreduce_to_optimizer_s": _between(last_reduce, first_update),
    }


def _launched_in_backward(table: EventTable, device: DeviceWork, host: HostWork) -> Mask:
    """Launched inside a function of the autograd engine, on its thread.

    Not simply after forward: what the reducer copies at the end and what the optimizer does must
    not count.  Without such functions: inside what is marked as backward.
    """
    if len(host.engine) or host.backward is None:
        return np.asarray(nest(table, host.engine).around(table, device.launch) != NONE)
    return np.asarray(host.backward.holds(table.start_ns[device.launch]))


def _launched_by_engine(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork
) -> Mask:
    """Launched in backward: by the engine's own thread, or by any other while backward ran.

    The reducer launches its last bucket after the last function has returned, on that thread.
    """
    own = present(table.thread[host.engine])
    begin, end = backward_windows(table, steps, host)
    at, thread = table.start_ns[device.launch], table.thread[device.launch]
    during = (at >= begin[device.step]) & (at < end[device.step])
    return np.asarray(during | np.isin(thread, own[own != steps.thread]))


def _launched_by_optimizer(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork
) -> Mask:
    """Launched inside an update, on the thread of the steps where that is known."""
    if host.optimizer is None:
        return np.zeros(len(device), bool)
    on_thread = np.isin(table.thread[device.launch], steps.thread) | (steps.thread == NONE)
    return np.asarray(host.optimizer.holds(table.start_ns[device.launch]) & on_thread)


def backward_windows(
    table: EventTable, steps: StepSpans, host: HostWork
) -> tuple[Integers, Integers]:
    """From the first start to the last end of backward on the host, for each step.

    A step without backward has a window that begins after everything.
    """
    begin = np.full(len(steps), _LATE)
    end = np.full(len(steps), _EARLY)
    starts, ends = table.start_ns[host.engine], table.end_ns[host.engine]
    if host.backward is not None and not len(host.engine):
        starts, ends = host.backward.start, host.backward.end
    step = steps.holding(starts)
    held = step != NONE
    np.minimum.at(begin, step[held], starts[held])
    np.maximum.at(end, step[held], ends[held])
    return begin, end


def _per_step(
    fold: np.ufunc, device: DeviceWork, wanted: Mask, times: Integers, count: int
) -> Integers:
    """The first or the last of *times* among the wanted that each step launched."""
    out = np.full(count, _LATE if fold is np.minimum else _EARLY)
    rows = np.flatnonzero(wanted & device.in_steps & (device.launch != NONE))
    fold.at(out, device.step[rows], times[rows])
    return out


def _between(earlier: Integers, later: Integers) -> list[float | None]:
    """Signed seconds from one to the other; `None` where either is missing."""
    return [
        None if {_LATE, _EARLY} & {begin, end} else (end - begin) / 1_000_000_000
        for begin, end in zip(earlier.tolist(), later.tolist(), strict=True)
    ]


def _kind(
    collectives: Collectives, kind: str, mine: Places, steps: int, computing: Spans
) -> Collective:
    length = collectives.end[mine] - collectives.start[mine]
    sized = mine[(collectives.bytes[mine] >= 0) & (length > 0)]
    size, time = collectives.bytes[sized], (collectives.end[sized] - collectives.start[sized]) / 1e9
    rate = float(size.sum() / time.sum()) if len(sized) else None
    limit = THRESHOLDS.small_collective_bytes if len(sized) else THRESHOLDS.small_collective_ns
    small = median((size if len(sized) else length).tolist()) < limit
    return Collective(
        kind=kind,
        count=len(mine),
        total_s=int(length.sum()) / 1e9,
        exposed_s=_exposed_s(collectives, mine, computing),
        bytes=int(size.sum()) if len(sized) else None,
        achieved_bytes_per_s=rate,
        bus_bytes_per_s=_bus(collectives, kind, sized),
        many_small=small and len(mine) >= THRESHOLDS.many_collectives * steps,
    )


def _exposed_s(collectives: Collectives, mine: Places, computing: Spans) -> float | None:
    # What runs during a collective of the host is not known.
    if (collectives.work[mine] == NONE).any():
        return None
    spans = union(collectives.start[mine], collectives.end[mine])
    return (spans.total - overlaps([spans], computing)[0]) / 1e9


def _bus(collectives: Collectives, kind: str, sized: Places) -> float | None:
    """Bytes over the busiest link a second, by the algorithm that moves least.

    `None` for kinds without such a factor, and where the number of ranks is not known.
    """
    ranks = collectives.members[sized]
    twice = {ALL_REDUCE: 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}.get(kind)
    if twice is None or not len(sized) or (ranks < 1).any():
        return None
    time = (collectives.end[sized] - collectives.start[sized]).sum() / 1e9
    return float((collectives.bytes[sized] * twice * (ranks - 1) / ranks).sum() / time)
