"""The figures by HTA's definitions are HTA's: what version 0.5.0 said of the real traces."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.planted import planted_steps
from support.traces import MS, TRACES, Launches, event, needs_traces, step_mark, table_of

from trainperf.traces.event_table import Kind
from trainperf.traces.hta import hta_breakdown
from trainperf.traces.reader import read


SAID: dict[str, Any] = json.loads((Path(__file__).parent / "hta_0_5_0.json").read_text())
"""Idle, compute, non-compute and device time; per cent; host, kernel and other wait of a stream."""


@needs_traces
@pytest.mark.parametrize("name", SAID)
def test_it_says_what_hta_says(name: str) -> None:
    """To the microsecond, on every trace that HTA loads."""
    found = hta_breakdown(read(TRACES / f"{name}.pt.trace.json.gz"))
    assert found is not None

    temporal = (found.idle_s, found.compute_s, found.non_compute_s, found.kernel_time_s)
    idle = {
        str(one.stream): [one.host_wait_s, one.kernel_wait_s, one.other_s]
        for one in found.idle_by_stream
    }

    assert [seconds * 1e6 for seconds in temporal] == pytest.approx(SAID[name]["temporal_us"])
    assert {
        stream: [round(seconds * 1e6) for seconds in waits] for stream, waits in idle.items()
    } == SAID[name]["idle_us"]
    overlap = found.comm_overlap_fraction
    assert (None if overlap is None else round(overlap * 100, 2)) == SAID[name]["overlap_percent"]


def test_the_last_of_several_steps_is_left_out() -> None:
    """Two planted steps are one: from the first copy to the end of the optimizer."""
    found = hta_breakdown(table_of(planted_steps(2)))
    assert found is not None

    assert found.kernel_time_s == pytest.approx(0.059)
    assert found.idle_s == pytest.approx(0.009)
    assert found.compute_s == pytest.approx(0.040)
    assert found.comm_overlap_fraction == pytest.approx(7 / 15)


def test_records_of_waiting_count_as_work() -> None:
    """Which ours do not."""
    launches = Launches()
    waiting = launches("Stream Wait Event", 0, 5 * MS, MS, kind=Kind.DEVICE_SYNC)
    events = [step_mark(1, 0, 20 * MS), *launches("gemm", 0, MS, MS), *waiting]

    found = hta_breakdown(table_of(events))
    assert found is not None

    assert found.kernel_time_s == pytest.approx(0.005)
    assert found.idle_s == pytest.approx(0.003)


def test_times_that_are_no_whole_microseconds_are_rounded_inwards() -> None:
    """A kernel of 0.6 µs inside one microsecond lasts minus one."""
    launches = Launches()
    events = [
        step_mark(1, 0, 20 * MS),
        *launches("short", 0, MS + 200, 600),
        *launches("long", 0, 3 * MS + 500, 2_000),
    ]

    found = hta_breakdown(table_of(events))
    assert found is not None

    # From 1001 µs to 3002 µs, busy for −1 and for 1.
    assert found.kernel_time_s == pytest.approx(2_001e-6)
    assert found.compute_s == pytest.approx(0.0, abs=1e-12)


def test_without_a_device_there_is_nothing_to_say() -> None:
    """`None`, where HTA fails."""
    assert hta_breakdown(table_of([event("aten::mm", 0, 5)])) is None
