"""Memory of each device over a trace, and what ran at its peak."""

import numpy as np

from trainperf.core.arrays import Places
from trainperf.traces.event_table import NONE, EventTable, Kind
from trainperf.traces.metrics.host import python_stacks
from trainperf.traces.metrics.spans import Nest, distinct
from trainperf.traces.results import MemoryCurve
from trainperf.traces.thresholds import THRESHOLDS


def memory_curves(table: EventTable, forest: Nest) -> tuple[MemoryCurve, ...]:
    """The curve of each device whose allocations the trace has; of the host if it has no other.

    The whole trace counts, not only its steps: what is allocated stays.
    """
    rows = table.rows(Kind.MEMORY)
    rows = rows[table.total_bytes[rows] != NONE]
    on_device = rows[table.device[rows] != NONE]
    rows = on_device if len(on_device) else rows
    curves = [
        _curve(table, rows[table.device[rows] == device], forest)
        for device in distinct(table.device[rows]).tolist()
    ]
    return tuple(sorted(curves, key=lambda curve: -curve.peak_bytes))


def _curve(table: EventTable, rows: Places, forest: Nest) -> MemoryCurve:
    """Of the events of one device; each stretch of time is a point, and no peak is lost."""
    at, totals, reserved = (
        column[rows] for column in (table.start_ns, table.total_bytes, table.reserved_bytes)
    )
    stretch = (at - at[0]) // ((at[-1] - at[0]) // THRESHOLDS.points + 1)
    first = np.flatnonzero(np.diff(stretch, prepend=NONE))
    peak = int(np.argmax(totals))
    device, top = int(table.device[rows[0]]), rows[[peak]]
    around = forest.ancestors(forest.around(table, top))
    return MemoryCurve(
        device=None if device == NONE else device,
        at_s=tuple((at[first] / 1e9).tolist()),
        allocated_bytes=tuple(np.maximum.reduceat(totals, first).tolist()),
        reserved_bytes=tuple(np.maximum.reduceat(reserved, first).tolist())
        if reserved.min() > 0
        else (),
        peak_bytes=int(totals[peak]),
        peak_s=int(at[peak]) / 1e9,
        operators=tuple(table.label(int(forest.rows[place])) for (place,) in around),
        stack=python_stacks(table, top, forest)[0],
    )
