"""Operators of a trace: where their own time goes."""

import numpy as np

from trainperf.core.arrays import Integers, Mask
from trainperf.traces.event_table import NONE, EventTable
from trainperf.traces.metrics.device import DeviceWork, sums
from trainperf.traces.metrics.spans import Nest, StepSpans, present
from trainperf.traces.results import Operator
from trainperf.traces.thresholds import THRESHOLDS


NO_OPERATOR = "(outside any operator)"


_Uses = dict[str, Integers]
"""What each operator of the forest took itself, in nanoseconds: `device`, the part of that in
events of `large` kernels, and `cpu`; its `calls`; index of its `name` (one more than the last for
device work outside any operator) and of its `shapes`."""


def top_operators(
    table: EventTable, steps: StepSpans, device: DeviceWork, forest: Nest
) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """The operators of the recorded steps with most device time, and those with most CPU time.

    Each is charged what it does itself, not what operators inside it do.  A kernel belongs to the
    innermost operator around its launch, on the thread that launched it.  Without a device both
    are the same list.
    """
    use = _uses(table, steps, device, forest)
    by_cpu = _top(table, use, "cpu", measured=len(device) > 0)
    by_device = _top(table, use, "device", measured=True) if len(device) else by_cpu
    return by_device, by_cpu


def self_times(forest: Nest) -> Integers:
    """Time of each operator without its direct children, which run on the same thread."""
    length = forest.end - forest.start
    own = length.copy()
    child = forest.parent != NONE
    np.subtract.at(own, forest.parent[child], length[child])
    return np.asarray(own)


def _uses(table: EventTable, steps: StepSpans, device: DeviceWork, forest: Nest) -> _Uses:
    length = device.end - device.start
    place = forest.around(table, device.launch)
    mine = device.in_steps
    recorded = steps.holding(forest.start) != NONE
    names = table.name[forest.rows].astype(np.int64)
    shapes = table.shapes[forest.rows].astype(np.int64)
    count = len(forest.rows)
    # One more for what no operator launched.
    at = np.where(place == NONE, count, place)[mine]
    large = np.where(length >= THRESHOLDS.large_kernel_ns, length, 0)
    return {
        "name": np.append(names, len(table.names)),
        "shapes": np.append(shapes, NONE),
        "calls": np.append(recorded.astype(np.int64), 0),
        "device": sums(at, length[mine], count + 1),
        "large": sums(at, large[mine], count + 1),
        "cpu": np.append(np.where(recorded, self_times(forest), 0), 0),
    }


def _top(table: EventTable, use: _Uses, by: str, *, measured: bool) -> tuple[Operator, ...]:
    codes = present(use["name"])
    group = np.searchsorted(codes, use["name"])
    total = {part: sums(group, values, len(codes)) for part, values in use.items()}
    weight = total[by]
    names = [*table.names, NO_OPERATOR]
    order = sorted(
        np.flatnonzero(weight > 0), key=lambda place: (-weight[place], names[codes[place]])
    )
    return tuple(
        Operator(
            name=names[codes[place]],
            shapes=_heaviest_shapes(table, use["shapes"], use[by], group == place),
            calls=int(total["calls"][place]),
            self_device_s=int(total["device"][place]) / 1e9 if measured else None,
            self_cpu_s=int(total["cpu"][place]) / 1e9,
            few_large=bool(2 * total["large"][place] >= total["device"][place])
            if total["device"][place]
            else None,
        )
        for place in order[: THRESHOLDS.rows]
    )


def _heaviest_shapes(
    table: EventTable, shapes: Integers, weights: Integers, mine: Mask
) -> str | None:
    has_shapes = mine & (shapes != NONE)
    if not has_shapes.any():
        return None
    shapes, group = np.unique(shapes[has_shapes], return_inverse=True)
    weight = sums(group, weights[has_shapes], len(shapes))
    texts = [table.texts[code] for code in shapes.tolist()]
    heaviest: tuple[int, str] = min(zip((-weight).tolist(), texts, strict=True))
    return heaviest[1]
