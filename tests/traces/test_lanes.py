"""What is drawn: few slices, none of the long ones lost."""

import pytest
from support.planted import planted_steps
from support.traces import MS, US, Launches, step_mark, table_of

from trainperf.traces import lanes
from trainperf.traces.rank_report import analyse
from trainperf.traces.results import TraceLane


def lane(found: tuple[TraceLane, ...], name: str) -> TraceLane:
    """The lane of a name."""
    return next(one for one in found if one.name == name)


def test_every_row_of_the_picture() -> None:
    """Steps, loader, threads, waiting, streams, idle; times from the first step's start."""
    found = analyse(table_of(planted_steps(2)), "x").lanes

    assert [one.name for one in found] == [
        "steps",
        "loader",
        "host thread 1",
        "host thread 2",
        "synchronising",
        "stream 7",
        "stream 20",
        "device idle",
    ]
    assert [(one.name, one.start_s, one.end_s) for one in lane(found, "steps").slices] == [
        ("step 1", 0.0, 0.1),
        ("step 2", 0.1, 0.2),
    ]
    assert [one.kind for one in lane(found, "stream 7").slices][:4] == [
        "copy",
        "compute",
        "compute",
        "compute",
    ]
    assert {one.kind for one in lane(found, "stream 20").slices} == {"communication"}


def test_a_lane_of_many_keeps_its_longest_and_loses_no_kind() -> None:
    """30,000 kernels become at most 4,000 slices; the long one among them stands by itself."""
    launches = Launches()
    events = [step_mark(1, 0, 100 * MS)]
    for number in range(30_000):
        kind = "ncclDevKernel_AllReduce" if number % 7 == 0 else "gemm"
        events += launches(kind, number * 3 * US, 40 * MS + number * 3 * US, 2 * US)
    events += launches("the long one", 90 * MS, 80 * MS + 1, 5 * MS)

    slices = lane(analyse(table_of(events), "x").lanes, "stream 7").slices

    assert len(slices) <= lanes.LANES.slices
    assert [one.end_s - one.start_s for one in slices if one.name == "the long one"] == [
        pytest.approx(0.005)
    ]
    assert {one.kind for one in slices} == {"compute", "communication"}
    named = [one for one in slices if " × " in one.name]
    alone = len(slices) - len(named)
    assert sum(int(one.name.partition(" × ")[0]) for one in named) + alone == 30_001
    assert [one.start_s for one in slices] == sorted(one.start_s for one in slices)
