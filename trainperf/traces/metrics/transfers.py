"""How much was copied between host and device, and was it hidden behind computing?"""

import numpy as np

from trainperf.traces.event_table import NONE, EventTable
from trainperf.traces.metrics.columns import StepColumns, by_step, seconds, share
from trainperf.traces.metrics.device import DeviceUse, DeviceWork
from trainperf.traces.metrics.intervals import overlaps


def transfer_columns(table: EventTable, device: DeviceWork, count: int) -> StepColumns:
    """Time, bytes and overlap of each step's copies; time is that of the copies on the device."""
    to_device, from_device = DeviceUse.TO_DEVICE, DeviceUse.FROM_DEVICE
    up = by_step(device, device.used_for(to_device), count)
    down = by_step(device, device.used_for(from_device), count)
    up_ns, down_ns = [spans.total for spans in up], [spans.total for spans in down]
    return {
        "h2d_s": seconds(up_ns),
        "h2d_bytes": _bytes(table, device, to_device, count),
        "h2d_overlap_fraction": share(overlaps(up, device.computing), up_ns),
        "d2h_s": seconds(down_ns),
        "d2h_bytes": _bytes(table, device, from_device, count),
        "d2h_overlap_fraction": share(overlaps(down, device.computing), down_ns),
    }


def _bytes(table: EventTable, device: DeviceWork, use: DeviceUse, count: int) -> list[int | None]:
    """Sum of what each step's copies moved; `None` if one of them does not say."""
    rows = np.flatnonzero(device.used_for(use) & device.in_steps)
    sizes, step = table.bytes[device.row[rows]], device.step[rows]
    total = np.zeros(count, np.int64)
    np.add.at(total, step, sizes)
    unsaid = np.zeros(count, bool)
    unsaid[step[sizes == NONE]] = True
    return [None if no else int(size) for size, no in zip(total, unsaid, strict=True)]
