"""The kernels of a trace by name: how long they ran, and how well they filled the device."""

import numpy as np

from trainperf.core.arrays import Integers
from trainperf.traces.event_table import EventTable, Ratios
from trainperf.traces.metrics.device import DeviceWork, sums
from trainperf.traces.metrics.device_columns import sounds_of_tensor_cores
from trainperf.traces.metrics.spans import present
from trainperf.traces.results import Kernel
from trainperf.traces.thresholds import THRESHOLDS


def top_kernels(table: EventTable, device: DeviceWork) -> tuple[Kernel, ...]:
    """The kernels that recorded steps launched, those of one name together, the longest first."""
    mine = device.kernel & device.in_steps
    rows, length = device.row[mine], (device.end - device.start)[mine]
    codes = present(table.name[rows])
    group = np.searchsorted(codes, table.name[rows])
    total_ns = sums(group, length, len(codes)).tolist()
    names = [table.names[code] for code in codes.tolist()]
    order = sorted(range(len(codes)), key=lambda place: (-total_ns[place], names[place]))
    kernels = []
    for place in order[: THRESHOLDS.rows]:
        named = group == place
        occupancy = _mean(table.occupancy_percent[rows[named]], length[named])
        kernels.append(
            Kernel(
                name=names[place],
                calls=int(named.sum()),
                total_s=total_ns[place] / 1e9,
                fraction=total_ns[place] / (sum(total_ns) or 1),
                tensor_cores=sounds_of_tensor_cores(names[place]),
                blocks_per_sm=_mean(table.blocks_per_sm[rows[named]], length[named]),
                occupancy_fraction=None if occupancy is None else occupancy / 100,
            )
        )
    return tuple(kernels)


def _mean(values: Ratios, length_ns: Integers) -> float | None:
    """Over the time of the kernels that say it; the profiler writes 0 where it cannot tell."""
    given = values > 0
    weight = np.maximum(length_ns[given], 1)
    return float((values[given] * weight).sum() / weight.sum()) if given.any() else None
