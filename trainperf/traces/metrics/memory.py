"""When was most memory in use, and which operator made it so?"""

import numpy as np

from trainperf.traces.event_table import NONE, EventTable, Kind
from trainperf.traces.metrics.links import Nest


def memory_peak(table: EventTable, forest: Nest) -> tuple[int | None, str | None]:
    """The largest total after an allocation, in bytes, and the innermost operator around it.

    Of the device, if the trace has a device's allocations.  The whole trace counts, not only its
    steps: what is allocated stays.
    """
    rows = table.rows(Kind.MEMORY)
    rows = rows[table.total_bytes[rows] > 0]
    on_device = rows[table.device[rows] != NONE]
    rows = on_device if len(on_device) else rows
    if not len(rows):
        return None, None
    peak = rows[int(np.argmax(table.total_bytes[rows]))]
    place = forest.innermost(table.thread[[peak]], table.start_ns[[peak]])[0]
    name = None if place == NONE else table.label(int(forest.rows[place]))
    return int(table.total_bytes[peak]), name
