"""Operators of a trace: where their own time goes."""

from dataclasses import dataclass

import numpy as np

from trainperf.core.arrays import Mask
from trainperf.traces.event_table import NONE, EventTable, Integers
from trainperf.traces.metrics.device import DeviceWork, sums
from trainperf.traces.metrics.spans import Nest, StepSpans, present
from trainperf.traces.results import Operator
from trainperf.traces.thresholds import THRESHOLDS


NO_OPERATOR = "(outside any operator)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """What each operator of the forest took itself, in nanoseconds."""

    name: Integers
    """Index of its name; one more than the last for device work outside any operator."""
    shapes: Integers
    calls: Integers
    device: Integers
    large: Integers
    """The part of `device` in events of large kernels."""
    cpu: Integers


def top_operators(
    table: EventTable, steps: StepSpans, device: DeviceWork, forest: Nest
) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """The operators of the recorded steps with most device time, and those with most CPU time.

    Each is charged what it does itself, not what operators inside it do.  A kernel belongs to the
    innermost operator around its launch, on the thread that launched it.  Without a device both
    are the same list.
    """
    use = _uses(table, steps, device, forest)
    by_cpu = _top(table, use, use.cpu, measured=len(device) > 0)
    if not len(device):
        return by_cpu, by_cpu
    return _top(table, use, use.device, measured=True), by_cpu


def self_times(forest: Nest) -> Integers:
    """Time of each operator without its direct children, which run on the same thread."""
    length = forest.end - forest.start
    own = length.copy()
    child = forest.parent != NONE
    np.subtract.at(own, forest.parent[child], length[child])
    return np.asarray(own)


def _uses(table: EventTable, steps: StepSpans, device: DeviceWork, forest: Nest) -> _Use:
    length = device.end - device.start
    place = forest.around(table, device.launch)
    mine = device.in_steps
    recorded = steps.holding(forest.start) != NONE
    names = table.name[forest.rows].astype(np.int64)
    shapes = table.shapes[forest.rows].astype(np.int64)
    count = len(forest.rows)
    # One more for what no operator launched.
    at = np.where(place == NONE, count, place)[mine]
    return _Use(
        name=np.append(names, len(table.names)),
        shapes=np.append(shapes, NONE),
        calls=np.append(recorded.astype(np.int64), 0),
        device=sums(at, length[mine], count + 1),
        large=sums(at, np.where(length >= THRESHOLDS.large_kernel_ns, length, 0)[mine], count + 1),
        cpu=np.append(np.where(recorded, self_times(forest), 0), 0),
    )


def _top(table: EventTable, use: _Use, by: Integers, *, measured: bool) -> tuple[Operator, ...]:
    codes = present(use.name)
    group = np.searchsorted(codes, use.name)
    total = {
        part: sums(group, getattr(use, part), len(codes))
        for part in ("calls", "device", "large", "cpu")
    }
    weight = sums(group, by, len(codes))
    names = [*table.names, NO_OPERATOR]
    order = sorted(
        np.flatnonzero(weight > 0), key=lambda place: (-weight[place], names[codes[place]])
    )
    return tuple(
        Operator(
            name=names[codes[place]],
            shapes=_heaviest_shapes(table, use, by, group == place),
            calls=int(total["calls"][place]),
            self_device_s=int(total["device"][place]) / 1e9 if measured else None,
            self_cpu_s=int(total["cpu"][place]) / 1e9,
            few_large=bool(2 * total["large"][place] >= total["device"][place])
            if total["device"][place]
            else None,
        )
        for place in order[: THRESHOLDS.rows]
    )


def _heaviest_shapes(table: EventTable, use: _Use, by: Integers, mine: Mask) -> str | None:
    has_shapes = mine & (use.shapes != NONE)
    if not has_shapes.any():
        return None
    shapes, group = np.unique(use.shapes[has_shapes], return_inverse=True)
    weight = sums(group, by[has_shapes], len(shapes))
    texts = [table.texts[code] for code in shapes.tolist()]
    heaviest: tuple[int, str] = min(zip((-weight).tolist(), texts, strict=True))
    return heaviest[1]
