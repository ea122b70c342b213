"""The device work of backward, and the all-reduce tail: communication that outlasts it."""

from dataclasses import dataclass

import numpy as np

from trainperf.traces.event_table import NONE, Column, EventTable
from trainperf.traces.metrics.device import DeviceUse, DeviceWork
from trainperf.traces.metrics.host import HostWork
from trainperf.traces.metrics.intervals import union
from trainperf.traces.metrics.steps import Mask, Rows, StepSpans, present


_LATE = np.iinfo(np.int64).max
_EARLY = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """End of the last gradient all-reduce against that of the last backward kernel, in nanoseconds.

    `None` in a step that has no backward kernel or no all-reduce in backward.  Of kernels only:
    it knows nothing of waiting on the host.
    """

    after_backward: list[int | None]
    """Signed: negative where the all-reduce ended first."""
    to_optimizer: list[int | None]
    """From the last all-reduce's end to the start of the optimizer's first kernel, signed."""


def tails(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork, reduces: Mask
) -> Tail:
    """The tail of every step; *reduces* are the device events that are all-reduces."""
    launched = device.launch != NONE
    computes = device.kernel & device.used_for(DeviceUse.COMPUTE)
    backward = computes & _launched_in_backward(table, device, host)
    optimizer = computes & _launched_by_optimizer(table, steps, device, host)
    count = len(steps)
    first_update = _extreme(device, optimizer, device.start, count, _LATE)
    last_backward = _extreme(device, backward, device.end, count, _EARLY)
    mine = reduces & launched & device.in_steps
    mine[mine] = device.start[mine] < first_update[device.step[mine]]
    mine &= _launched_by_engine(table, steps, device, host)
    last_reduce = _extreme(device, mine, device.end, count, _EARLY)
    has_tail = (last_reduce != _EARLY) & (last_backward != _EARLY)
    updated = (last_reduce != _EARLY) & (first_update != _LATE)
    return Tail(
        after_backward=_signed(last_reduce, last_backward, has_tail),
        to_optimizer=_signed(first_update, last_reduce, updated),
    )


def _launched_in_backward(table: EventTable, device: DeviceWork, host: HostWork) -> Mask:
    """Launched inside a function of the autograd engine, on its thread.

    Not simply after forward: what the reducer copies at the end and what the optimizer does must
    not count.  Without such functions: inside what is marked as backward.
    """
    inside = np.zeros(len(device), bool)
    launched = np.flatnonzero(device.launch != NONE)
    rows = device.launch[launched]
    if not len(host.engine):
        if host.backward is not None:
            inside[launched] = host.backward.holds(table.start_ns[rows])
        return inside
    for thread in present(table.thread[host.engine]):
        mine = host.engine[table.thread[host.engine] == thread]
        spans = union(table.start_ns[mine], table.end_ns[mine])
        on_it = table.thread[rows] == thread
        inside[launched[on_it]] = spans.holds(table.start_ns[rows[on_it]])
    return inside


def _launched_by_engine(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork
) -> Mask:
    """Launched in backward: by the engine's own thread, or by any other while backward ran.

    The reducer launches its last bucket after the last function has returned, on that thread.
    """
    inside = np.zeros(len(device), bool)
    launched = np.flatnonzero(device.launch != NONE)
    rows = device.launch[launched]
    own = present(table.thread[host.engine])
    own = own[own != steps.thread]
    begin, end = backward_windows(table, steps, host)
    step = device.step[launched]
    during = step != NONE
    at = table.start_ns[rows]
    during[during] = (at[during] >= begin[step[during]]) & (at[during] < end[step[during]])
    inside[launched] = during | np.isin(table.thread[rows], own)
    return inside


def backward_windows(table: EventTable, steps: StepSpans, host: HostWork) -> tuple[Column, Column]:
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


def _launched_by_optimizer(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork
) -> Mask:
    """Launched inside an update, on the thread of the steps where that is known."""
    inside = np.zeros(len(device), bool)
    if host.optimizer is None:
        return inside
    launched = np.flatnonzero(device.launch != NONE)
    rows = device.launch[launched]
    inside[launched] = host.optimizer.holds(table.start_ns[rows])
    if steps.thread != NONE:
        inside[launched] &= table.thread[rows] == steps.thread
    return inside


def _extreme(device: DeviceWork, wanted: Mask, times: Column, count: int, start: int) -> Column:
    """The first or the last of *times* among the wanted of each step; *start* where none is."""
    out = np.full(count, start)
    rows: Rows = np.flatnonzero(wanted & device.in_steps)
    fold = np.minimum if start == _LATE else np.maximum
    fold.at(out, device.step[rows], times[rows])
    return out


def _signed(later: Column, earlier: Column, is_measured: Mask) -> list[int | None]:
    return [
        int(end - begin) if sure else None
        for end, begin, sure in zip(later, earlier, is_measured, strict=True)
    ]
