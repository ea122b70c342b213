"""Exposed communication of a kind and of a group: wall time, however many collectives share it."""

import pytest
from support.traces import MS, Launches, step_mark, table_of

from trainperf.traces.event_table import TraceInfo
from trainperf.traces.rank_report import analyse


def test_what_two_collectives_expose_at_once_is_exposed_once() -> None:
    """From 2 to 7 ms one or the other communicates, and 1 ms of that is computed next to them."""
    launches = Launches()
    events = [
        step_mark(1, 0, 20 * MS),
        *launches("ncclDevKernel_AllGather_RING_LL", MS, 2 * MS, 4 * MS, stream=4, group="0"),
        *launches("ncclDevKernel_AllGather_RING_LL", MS, 3 * MS, 4 * MS, stream=5, group="0"),
        *launches("gemm", 3 * MS, 6 * MS, 4 * MS, stream=7),
    ]

    trace = analyse(table_of(events, TraceInfo(world_size=2, process_groups={"0": (0, 1)})), "x")

    (kind,), (group,) = trace.collectives, trace.process_groups
    assert kind.exposed_s == pytest.approx(0.004)
    assert group.exposed_s == pytest.approx(0.004)
    assert trace.steps[0].comm_exposed_s == pytest.approx(0.004)
