"""Causes of slower steps on the machine's side: when each held, and the steady steps in it.

A cause is a rule of thumb over what was sampled.  Its stretches of time are found first, by the
samples alone; steps are put into them as they are read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.machine import MachineSeries
from trainperf.analysis.summary.machine_facts import Cause, MachineWindow
from trainperf.core.artifacts.machine import POWER_BRAKE_BIT, THERMAL_BITS
from trainperf.core.findings import LIMITS
from trainperf.core.stats.quantiles import Distribution
from trainperf.core.steps.block import Column


TOGETHER_S = 5.0
"""Stretches that are no further apart are one: clocks are sampled once a second, and flicker."""
MOST_WINDOWS = 64
"""Of a cause on one host that are listed; all of them are counted."""

MOST_NAMED = 3
"""Other processes."""

OTHERS_CPUS, OTHERS_SHARE = 0.25, 0.1
"""CPUs, and share of the host's, from which on others count as busy."""
OTHERS_ON_DEVICE = 0.05
"""Share of the multiprocessors' time."""
STALLED = {"memory_pressure": 0.05, "io_pressure": 0.2}
"""Share of the time in which some task is stalled.  Of a disk more is usual: readers wait."""
SWAPPED = 1 << 20
"""Bytes per second."""
LOST_SEGMENTS, LOST_SEGMENTS_SHARE = 10.0, 0.01
"""TCP segments sent again, per second, and of those sent."""

Mask = npt.NDArray[np.bool_]


def _thermal(series: MachineSeries, device: int) -> Mask:
    return has_reason(series, device, THERMAL_BITS)


def _power_brake(series: MachineSeries, device: int) -> Mask:
    return has_reason(series, device, POWER_BRAKE_BIT)


def _device_shared(series: MachineSeries, device: int) -> Mask:
    busy = series.device(device, "others_busy")
    working = np.isnan(busy) | (busy >= OTHERS_ON_DEVICE)
    return _above(series.device(device, "others"), 0.5) & working


def _host_shared(series: MachineSeries) -> Mask:
    least = max(OTHERS_CPUS, OTHERS_SHARE * (series.header.cpus or 1))
    return _above(others_cpus(series), least)


def _memory(series: MachineSeries) -> Mask:
    swapped = _above(series.column("swapped"), SWAPPED)
    return swapped | _above(series.column("memory_pressure"), STALLED["memory_pressure"])


def _disk(series: MachineSeries) -> Mask:
    return _above(series.column("io_pressure"), STALLED["io_pressure"])


def _network(series: MachineSeries) -> Mask:
    lost, sent = series.column("net_retransmitted"), series.column("net_segments")
    return _above(lost, LOST_SEGMENTS) & (lost >= LOST_SEGMENTS_SHARE * np.nan_to_num(sent))


_OF_DEVICES: dict[Cause, Callable[[MachineSeries, int], Mask]] = {
    "thermal": _thermal,
    "power brake": _power_brake,
    "device shared": _device_shared,
}
_OF_HOSTS: dict[Cause, Callable[[MachineSeries], Mask]] = {
    "host shared": _host_shared,
    "memory": _memory,
    "disk": _disk,
    "network": _network,
}
_DEVICE_VALUES = ("sm_mhz", "power_w", "celsius", "others", "others_busy")
_HOST_VALUES = (
    *("waited", "cpu_pressure", "memory_pressure", "io_pressure", "memory_free", "swapped"),
    *("disk_read", "disk_written", "net_retransmitted"),
)


def others_cpus(series: MachineSeries) -> Column:
    """CPUs that were busy, and not with this training."""
    return np.maximum(series.column("cpu_busy") - series.column("cpu_own"), 0.0)


@dataclass(slots=True)
class CauseStretches:
    """A cause on one host or device: its stretches of time, and the steady steps in them."""

    cause: Cause
    series: MachineSeries
    device: int | None
    begins: Column
    ends: Column
    inside: Distribution | None = None
    alone: Distribution | None = None
    """Of steps in which no other cause held."""
    seconds: Column = field(init=False)
    first: Column = field(init=False)
    last: Column = field(init=False)
    steps: Column = field(init=False)
    each: dict[int, Distribution | None] = field(default_factory=dict)
    """Of the longest stretches."""

    def __post_init__(self) -> None:
        number = len(self.begins)
        self.seconds, self.steps = np.zeros(number), np.zeros(number)
        self.first, self.last = np.full(number, np.inf), np.full(number, -1.0)
        longest = np.argsort(self.begins - self.ends)[:MOST_WINDOWS]
        self.each = {int(place): None for place in sorted(longest)}

    def observe(self, middle_ns: Column, index: Column, walls_s: Column) -> Mask:
        """Take steady steps; which of them were in a stretch."""
        place = np.searchsorted(self.begins, middle_ns, side="right") - 1
        inside: Mask = (place >= 0) & (middle_ns <= self.ends[place])
        if not inside.any():
            return inside
        chosen, walls = place[inside], walls_s[inside]
        np.add.at(self.seconds, chosen, walls)
        np.add.at(self.steps, chosen, 1)
        np.minimum.at(self.first, chosen, index[inside])
        np.maximum.at(self.last, chosen, index[inside])
        self.inside = merged(self.inside, walls)
        for stretch in np.unique(chosen):
            if int(stretch) in self.each:
                self.each[int(stretch)] = merged(self.each[int(stretch)], walls[chosen == stretch])
        return inside


def stretches_of(series: MachineSeries) -> Iterator[CauseStretches]:
    """All causes that come up on a host."""
    masks: list[tuple[Cause, int | None, Mask]] = [
        (cause, None, of(series)) for cause, of in _OF_HOSTS.items()
    ]
    for place in range(len(series.header.devices)):
        masks += [(cause, place, of(series, place)) for cause, of in _OF_DEVICES.items()]
    for cause, device, mask in masks:
        begins, ends = intervals(series.at_ns, mask)
        if len(begins):
            yield CauseStretches(cause, series, device, begins, ends)


def intervals(at_ns: Column, mask: Mask) -> tuple[Column, Column]:
    """Stretches in which *mask* holds, from the sample before to the last one in it.

    A sample speaks of the time since the one before.  Stretches close to each other are one.
    """
    if not mask.any():
        return np.empty(0), np.empty(0)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    first, last = edges[::2], edges[1::2] - 1
    before = np.concatenate(
        (at_ns[:1] - (np.median(np.diff(at_ns)) if len(at_ns) > 1 else 0), at_ns)
    )
    begins, ends = before[first], at_ns[last]
    apart = begins[1:] - ends[:-1] > TOGETHER_S * 1e9
    starts, stops = np.concatenate(([True], apart)), np.concatenate((apart, [True]))
    return begins[starts], ends[stops]


def inside_of(stretches: CauseStretches) -> Mask:
    """Samples in its stretches."""
    at_ns = stretches.series.at_ns
    place = np.searchsorted(stretches.begins, at_ns, side="left") - 1  # later than its begin
    result: Mask = (place >= 0) & (at_ns <= stretches.ends[place])
    return result


def means_of(
    parts: Sequence[tuple[CauseStretches, Mask]], *, outside: bool = False
) -> dict[str, float]:
    """Means of what belongs to a cause over some samples of each attempt."""
    values = [_values(stretches) for stretches, _ in parts]
    masks = np.concatenate([mask for _, mask in parts])
    columns = {name: np.concatenate([each[name] for each in values]) for name in values[0]}
    means = {name: mean_of(column[masks]) for name, column in columns.items()}
    if outside and "sm_mhz" in columns:
        means["outside_sm_mhz"] = mean_of(columns["sm_mhz"][~masks])
    return {name: mean for name, mean in means.items() if mean is not None}


def _values(stretches: CauseStretches) -> dict[str, Column]:
    series, device = stretches.series, stretches.device
    if device is not None:
        return {name: series.device(device, name) for name in _DEVICE_VALUES}
    columns = {name: series.column(name) for name in _HOST_VALUES}
    return columns | {"others_cpus": others_cpus(series)}


def windows_of(stretches: CauseStretches, typical_s: float | None) -> Iterator[MachineWindow]:
    """The longest stretches that have a steady step."""
    for place, walls in stretches.each.items():
        if walls is None:
            continue
        at_ns = stretches.series.at_ns
        chosen = (at_ns > stretches.begins[place]) & (at_ns <= stretches.ends[place])
        median_s = walls.value() if walls.n >= LIMITS.steps else None
        yield MachineWindow(
            first_step=int(stretches.first[place]),
            last_step=int(stretches.last[place]),
            steps=int(stretches.steps[place]),
            seconds=float(stretches.seconds[place]),
            slower=median_s / typical_s - 1 if median_s and typical_s else None,
            values=means_of([(stretches, chosen)]),
        )


def who_is_in(parts: Sequence[CauseStretches]) -> tuple[str, ...]:
    """Other processes named in a cause's stretches, the one that kept most CPUs busy first."""
    if parts[0].cause not in ("device shared", "host shared"):
        return ()
    named: dict[str, float] = {}
    for stretches in parts:
        for each in stretches.series.neighbours:
            place = int(np.searchsorted(stretches.begins, each.at_ns, side="right")) - 1
            within = place >= 0 and each.at_ns <= stretches.ends[place]
            if within and each.device == stretches.device and each.name:
                name = f"{each.name} ({each.pid})"
                named[name] = named.get(name, 0.0) + each.cpus
    return tuple(sorted(named, key=lambda name: -named[name])[:MOST_NAMED])


def has_reason(series: MachineSeries, device: int, bits: int) -> Mask:
    """Samples at which a device said that its clock was lower for one of these."""
    reasons = np.nan_to_num(series.device(device, "reasons")).astype(np.int64)
    result: Mask = (reasons & bits) != 0
    return result


def _above(column: Column, limit: float) -> Mask:
    """Not where it is missing."""
    result: Mask = np.nan_to_num(column, nan=-np.inf) >= limit
    return result


def mean_of(column: Column) -> float | None:
    """Mean of what there is; `None` where there is nothing."""
    present = column[~np.isnan(column)]
    return float(present.mean()) if len(present) else None


def merged(before: Distribution | None, walls_s: Column) -> Distribution | None:
    """A distribution with further step times in it."""
    return joined((before, Distribution.of(walls_s)))


def joined(parts: Iterable[Distribution | None]) -> Distribution | None:
    """The distribution of all; `None` where there is none."""
    present = [each for each in parts if each is not None]
    return reduce(Distribution.merge, present) if present else None
