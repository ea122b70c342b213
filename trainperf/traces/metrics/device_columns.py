"""The device's part of a step: busy time, idle time by its cause, copies and kernels."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainperf.core.arrays import Integers, Mask, Places
from trainperf.traces.event_table import NONE, EventTable, Kind
from trainperf.traces.metrics.device import (
    DeviceUse,
    DeviceWork,
    StepColumns,
    Value,
    by_step,
    per_step,
    seconds,
    share,
    sums,
)
from trainperf.traces.metrics.host import LAUNCHING, HostWork
from trainperf.traces.metrics.spans import (
    Spans,
    StepSpans,
    by_name,
    clipped,
    named,
    overlaps,
    union,
    without,
)
from trainperf.traces.thresholds import THRESHOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSplit:
    """Device-idle time by cause, for each step, in nanoseconds.

    A pause belongs to the step whose work ends it, and with it the wait of that step for its batch.
    What the first step waited before its first work is in none.

    The causes: `data_wait`, the host was in the loader; `sync`, it was inside a synchronising call,
    and not in the loader; of the rest `host_bound`, the next work was launched only after the
    device had run out of it; and `other`, it had been launched: the device itself was late, or
    waited for another.
    """

    causes: Mapping[str, Integers]
    pauses: Spans
    """The pauses themselves."""


def idle_split(
    table: EventTable, steps: StepSpans, device: DeviceWork, host: HostWork
) -> IdleSplit:
    """The pauses between the first and the last work that recorded steps launched."""
    bounds = device.spans(device.in_steps).bounds or (0, 0)
    pauses = without(union(*np.array(bounds)[:, None]), clipped(device.busy, *bounds))
    launched_late = _launched_late(table, device, pauses)
    waited = host.loader.within(pauses.start, pauses.end)
    synced = without(host.syncing, host.loader).within(pauses.start, pauses.end)
    rest = pauses.end - pauses.start - waited - synced
    period = _period(steps, device, pauses)
    parts = {
        "data_wait": waited,
        "sync": synced,
        "host_bound": np.where(launched_late, rest, 0),
        "other": np.where(launched_late, 0, rest),
    }
    causes = {part: sums(period, values, len(steps)) for part, values in parts.items()}
    return IdleSplit(causes=causes, pauses=pauses)


def _launched_late(table: EventTable, device: DeviceWork, pauses: Spans) -> Mask:
    """Whether the work that ended each pause was launched after the pause had begun."""
    # The first of those that start together; rows are in order of start.
    ends_it = np.searchsorted(device.start, pauses.end, side="left")
    launch = device.launch[ends_it]
    return np.asarray((launch != NONE) & (table.start_ns[launch] >= pauses.start), bool)


def _period(steps: StepSpans, device: DeviceWork, pauses: Spans) -> Places:
    """The step in whose own period each pause ends: from the end of the earlier step's work on."""
    mine = device.in_steps
    first = np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(first, device.step[mine], device.start[mine])
    worked = np.flatnonzero(first < np.iinfo(np.int64).max)
    # A later step whose first copy overtakes an earlier step's begins where that one does.
    begins = np.maximum.accumulate(first[worked])
    return np.asarray(worked[np.searchsorted(begins, pauses.end, side="right") - 1], np.intp)


_TENSOR_CORE = re.compile(
    r"tensor_?op|hmma|imma|wgmma|gmma|xmma|_mma_|nvjet|flash|fmha|mfma|h884|h1688|i8816"
    r"|[_s](884|1688|8816|16816|168128)|_MI(16|32|4)x|_MT\d+x\d+.*_MI\d+",
    re.IGNORECASE,
)
_ORDINARY = re.compile(r"simt|_sgemm_|cutlass_\d+_simt", re.IGNORECASE)


def device_columns(
    table: EventTable, steps: StepSpans, device: DeviceWork, idle: IdleSplit
) -> StepColumns:
    """Busy and idle time, copies and kernels of each step; not measured without a device."""
    count = len(steps)
    if not len(device):
        return {}
    spans = by_step(device, device.in_steps, count)
    compute = by_step(device, device.kernel & device.used_for(DeviceUse.COMPUTE), count)
    bounds = [each.bounds for each in spans]
    return {
        "device_span_s": [(ends[1] - ends[0]) / 1e9 if ends else None for ends in bounds],
        "gpu_busy_s": seconds([each.total for each in spans]),
        "gpu_idle_s": seconds(np.sum([*idle.causes.values()], axis=0)),
        **{f"idle_{cause}_s": seconds(ns) for cause, ns in idle.causes.items()},
        "compute_s": seconds([each.total for each in compute]),
        **_transfers(table, device, count),
        **_kernels(table, steps, device),
    }


def _transfers(table: EventTable, device: DeviceWork, count: int) -> StepColumns:
    """Time, bytes and overlap of each step's copies; time is that of the copies on the device."""
    columns: dict[str, Sequence[Value]] = {}
    for name, use in (("h2d", DeviceUse.TO_DEVICE), ("d2h", DeviceUse.FROM_DEVICE)):
        spans = by_step(device, device.used_for(use), count)
        copying_ns = [each.total for each in spans]
        columns[f"{name}_s"] = seconds(copying_ns)
        columns[f"{name}_bytes"] = _bytes(table, device, use, count)
        columns[f"{name}_overlap_fraction"] = share(overlaps(spans, device.computing), copying_ns)
    return columns


def _bytes(table: EventTable, device: DeviceWork, use: DeviceUse, count: int) -> list[int | None]:
    """Sum of what each step's copies moved; `None` if one of them does not say."""
    rows = np.flatnonzero(device.used_for(use) & device.in_steps)
    sizes, step = table.bytes[device.row[rows]], device.step[rows]
    totals, unsaid = sums(step, sizes, count), sums(step[sizes == NONE], 1, count)
    return [None if no else int(size) for size, no in zip(totals, unsaid, strict=True)]


def _kernels(table: EventTable, steps: StepSpans, device: DeviceWork) -> StepColumns:
    """Counts and sums over the kernels that each step launched, communication among them."""
    count = len(steps)
    length = device.end - device.start
    short = device.kernel & (length < THRESHOLDS.short_kernel_ns)
    compute = device.kernel & device.used_for(DeviceUse.COMPUTE)
    launches = named(table, LAUNCHING, Kind.RUNTIME)
    computed = per_step(device.step[compute], count, length[compute])
    tensor = compute & by_name(table, device.row, sounds_of_tensor_cores)
    return {
        "kernels": per_step(device.step[device.kernel], count),
        "launches": per_step(steps.holding(table.start_ns[launches]), count),
        "short_kernels": per_step(device.step[short], count),
        "short_kernels_s": seconds(per_step(device.step[short], count, length[short])),
        "tensor_core_fraction": share(
            per_step(device.step[tensor], count, length[tensor]), computed
        ),
    }


def sounds_of_tensor_cores(name: str) -> bool:
    """Whether a kernel's name is one that libraries give to those that use tensor cores."""
    return _TENSOR_CORE.search(name) is not None and _ORDINARY.search(name) is None
