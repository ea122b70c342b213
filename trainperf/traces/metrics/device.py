"""The work of the device: what it was for, when it ran, and which step launched it.

And columns of `TraceStep`: nanoseconds of many steps put into its fields.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Integers, Mask, Places
from trainperf.core.choice import first_that_holds
from trainperf.traces.event_table import DEVICE_WORK, NONE, Codes, EventTable, Kind
from trainperf.traces.metrics.spans import (
    WINDOW,
    Spans,
    StepSpans,
    by_text,
    distinct,
    launches_of,
    union,
)


class DeviceUse(IntEnum):
    """What a device event is for."""

    COMPUTE = 0
    COMMUNICATION = 1
    TO_DEVICE = 2
    FROM_DEVICE = 3
    OTHER_COPY = 4
    """On one device, or between two; memory that is set."""


_COMMUNICATION = re.compile(
    r"(nccl|rccl|msccl)"
    r"|.*(nvshmem|deep_ep|cross_device_reduce|_all_reduce_kernel|multimem_all"
    r"|all_reduce_(one|two)_shot|(one|two)_shot_all_reduce)",
    re.IGNORECASE,
)
"""Also collectives that are no library's: otherwise they would be taken for computing."""

_TO_DEVICE = re.compile(r".*(HtoD|HostToDevice|H2D|M2D)", re.IGNORECASE)
_FROM_DEVICE = re.compile(r".*(DtoH|DeviceToHost|D2H|D2M)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
    """What one device did, kernels, copies and sets, in order of start; one row each."""

    row: Places
    start: Integers
    end: Integers
    use: npt.NDArray[np.uint8]
    """Values of `DeviceUse`."""
    kernel: Mask
    launch: Places
    """Row of the call that launched it; `NONE` where the trace has none."""
    step: Codes
    """Position of the step that launched it; `NONE` if launched outside all."""
    busy: Spans
    """When the device did anything."""
    computing: Spans
    """When it ran a kernel that is no communication."""
    other_devices: int
    """How many further devices worked; their work is left out."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def in_steps(self) -> Mask:
        """What was launched by a recorded step."""
        return np.asarray(self.step != NONE)

    def spans(self, wanted: Mask) -> Spans:
        """When any of the wanted ran."""
        return union(self.start[wanted], self.end[wanted])

    def used_for(self, *uses: DeviceUse) -> Mask:
        """Which are for one of these."""
        return np.asarray(np.isin(self.use, uses))


def device_work(table: EventTable, steps: StepSpans) -> DeviceWork:
    """The work of the device that worked longest, each event with the step that launched it."""
    rows, others = _one_device(table, table.rows(*DEVICE_WORK))
    launch = launches_of(table, rows)
    launched = launch != NONE
    step = np.where(launched, steps.holding(table.start_ns[launch]), np.int32(NONE))
    if len(steps) and not launched.any() and steps.source == WINDOW:
        # A trace of the device alone: there is one window, and all of it is inside.
        step[:] = 0
    start, end = table.start_ns[rows], table.end_ns[rows]
    use = by_text(table.names, table.name[rows], _use).astype(np.uint8)
    use[table.kind[rows] == Kind.MEMSET] = DeviceUse.OTHER_COPY
    kernel = table.kind[rows] == Kind.KERNEL
    computes = kernel & (use == DeviceUse.COMPUTE)
    use[~kernel & (use <= DeviceUse.COMMUNICATION)] = DeviceUse.OTHER_COPY
    return DeviceWork(
        row=rows,
        start=start,
        end=end,
        use=use,
        kernel=kernel,
        launch=launch,
        step=step,
        busy=union(start, end),
        computing=union(start[computes], end[computes]),
        other_devices=others,
    )


def _one_device(table: EventTable, rows: Places) -> tuple[Places, int]:
    devices = distinct(table.device[rows])
    if len(devices) < 2:
        return rows, 0
    times = [table.duration_ns[rows[table.device[rows] == device]].sum() for device in devices]
    return rows[table.device[rows] == devices[int(np.argmax(times))]], len(devices) - 1


def _use(name: str) -> DeviceUse:
    """What an event of that name is for, if it is a kernel or a copy."""
    copies = name.startswith(("Memcpy", "Copy", "hipMemcpy", "zeCommandListAppendMemory"))
    return first_that_holds(
        (DeviceUse.TO_DEVICE, copies and _TO_DEVICE.match(name)),
        (DeviceUse.FROM_DEVICE, copies and _FROM_DEVICE.match(name)),
        (DeviceUse.OTHER_COPY, copies),
        (DeviceUse.COMMUNICATION, _COMMUNICATION.match(name)),
        (DeviceUse.COMPUTE, True),
    )


Value = float | int | None
StepColumns = Mapping[str, Sequence[Value]]
"""Fields of `TraceStep`, each with a value for every step; one that is missing was not measured."""


def seconds(nanoseconds: Integers | Sequence[int]) -> list[float]:
    """Whole nanoseconds as seconds."""
    return [int(value) / 1_000_000_000 for value in nanoseconds]


def share(part: Sequence[int], whole: Sequence[int]) -> list[float | None]:
    """Quotients; `None` where there is nothing to have a share in."""
    return [part_ / whole_ if whole_ else None for part_, whole_ in zip(part, whole, strict=True)]


def by_step(device: DeviceWork, wanted: Mask, count: int) -> list[Spans]:
    """When any of the wanted that each step launched ran."""
    rows = np.flatnonzero(wanted & device.in_steps)
    rows = rows[np.argsort(device.step[rows], kind="stable")]
    bounds = np.searchsorted(device.step[rows], np.arange(count + 1))
    groups = np.split(rows, bounds[1:-1])
    return [union(device.start[mine], device.end[mine]) for mine in groups]


def sums(group: Codes | Places, values: Integers | int, count: int) -> Integers:
    """The sum of *values* in each of *count* groups; *group* has the number of each one's."""
    out = np.zeros(count, np.int64)
    np.add.at(out, group, values)
    return out


def per_step(step: Codes | Integers, count: int, weights: Integers | None = None) -> list[int]:
    """How many rows, or the sum of whole *weights*, each step has; rows outside are left out."""
    inside = step != NONE
    counts = sums(step[inside], 1 if weights is None else weights[inside], count)
    return [int(value) for value in counts]
