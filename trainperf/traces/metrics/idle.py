"""Idle time of the device, split by what the host did in each pause."""

from dataclasses import dataclass

import numpy as np

from trainperf.traces.event_table import NONE, Column, EventTable
from trainperf.traces.metrics.device import DeviceWork
from trainperf.traces.metrics.host import HostWork
from trainperf.traces.metrics.intervals import Spans, clipped, without
from trainperf.traces.metrics.steps import Rows, StepSpans


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSplit:
    """Device-idle time by cause, for each step; the four sum to `total` exactly, in nanoseconds.

    A step's own period on the device runs from its first work to the first of the next step that
    has any; the last one's to the end of its work.  0 for a step without work.
    """

    total: Column
    data_wait: Column
    """The host was in the loader."""
    sync: Column
    """The host was inside a synchronising call, and not in the loader."""
    host_bound: Column
    """Of the rest: the next work was launched only after the device had run out of it."""
    other: Column
    """The next work had been launched: the device itself was late, or waited for another."""
    pauses: Spans
    """The pauses themselves."""


def idle_split(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork
) -> IdleSplit:
    """The pauses between the first and the last work that recorded steps launched."""
    bounds = device.spans(device.in_steps).bounds or (0, 0)
    pauses = without(_whole(bounds), clipped(device.busy, *bounds))
    launched_late = _launched_late(table, device, pauses)
    waited = host.loader.within(pauses.start, pauses.end)
    synced = without(host.syncing, host.loader).within(pauses.start, pauses.end)
    rest = pauses.end - pauses.start - waited - synced
    period = _period(steps, device, pauses)
    parts = {
        "total": pauses.end - pauses.start,
        "data_wait": waited,
        "sync": synced,
        "host_bound": np.where(launched_late, rest, 0),
        "other": np.where(launched_late, 0, rest),
    }
    sums = {part: _sums(period, values, len(steps)) for part, values in parts.items()}
    return IdleSplit(**sums, pauses=pauses)


def _whole(bounds: tuple[int, int]) -> Spans:
    start, end = bounds
    keep = end > start
    return Spans(start=np.array([start][:keep], np.int64), end=np.array([end][:keep], np.int64))


def _launched_late(
    table: EventTable, device: DeviceWork, pauses: Spans
) -> "np.typing.NDArray[np.bool_]":
    """Whether the work that ended each pause was launched after the pause had begun."""
    # The first of those that start together; rows are in order of start.
    ends_it = np.searchsorted(device.start, pauses.end, side="left")
    launch = device.launch[ends_it]
    launched = launch != NONE
    late = launched.copy()
    late[launched] = table.start_ns[launch[launched]] >= pauses.start[launched]
    return np.asarray(late, bool)


def _period(steps: StepSpans, device: DeviceWork, pauses: Spans) -> Rows:
    """The step in whose own period each pause begins."""
    mine = device.in_steps
    first = np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(first, device.step[mine], device.start[mine])
    worked = np.flatnonzero(first < np.iinfo(np.int64).max)
    # A later step whose first copy overtakes an earlier step's begins where that one does.
    begins = np.maximum.accumulate(first[worked])
    return np.asarray(worked[np.searchsorted(begins, pauses.start, side="right") - 1], np.intp)


def _sums(place: Rows, values: Column, count: int) -> Column:
    out = np.zeros(count, np.int64)
    np.add.at(out, place, values)
    return out
