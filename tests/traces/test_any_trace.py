"""Whatever a file says: no exception, and what must sum does."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.traces import Launches, event, table_of

from trainperf.analysis.diagnosis.of_capture import diagnosed
from trainperf.reports.capture.document import capture_document
from trainperf.reports.layout.forms import as_json
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text
from trainperf.traces.answer import answer
from trainperf.traces.event_table import Kind
from trainperf.traces.rank_report import analyse
from trainperf.traces.results import RankTrace, TraceReport


NAMES = (
    "ProfilerStep#1",
    "ProfilerStep#2",
    "ProfilerStep#2",
    "Optimizer.step#SGD.step",
    "enumerate(DataLoader)#_Iter.__next__",
    "autograd::engine::evaluate_function: X",
    "aten::item",
    "aten::_local_scalar_dense",
    "aten::mm",
    "nccl:all_reduce",
    "gloo:all_reduce",
    "cudaStreamSynchronize",
    "cudaLaunchKernel",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "ncclDevKernel_Generic",
    "Memcpy HtoD (Pinned -> Device)",
    "",
)
TIMES = st.integers(0, 60)
HOST = st.sampled_from([("1", "1"), ("1", "2")])


@st.composite
def anything(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events of all kinds at any time, and calls with what they launched."""
    launches, events = Launches(), []
    for _ in range(draw(st.integers(1, 14))):
        name, start = draw(st.sampled_from(NAMES)), draw(TIMES)
        if draw(st.booleans()):
            kind = draw(st.sampled_from([Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.DEVICE_SYNC]))
            made = launches(name, start, draw(TIMES), draw(TIMES), kind=kind, on=draw(HOST))
            events += made if draw(st.integers(0, 5)) else made[1:]
        else:
            kind = draw(st.sampled_from(list(Kind)))
            given = {"kind": kind, "thread": draw(HOST), "sequence": draw(st.integers(-1, 2))}
            given |= {"total_bytes": draw(st.integers(-1, 9)), "elements": draw(TIMES)}
            events.append(event(name, start, draw(TIMES), **given))
    return events


@settings(max_examples=150, deadline=None)
@example([event("Optimizer.step#SGD.step", 0, 0)])
@given(anything())
def test_any_events_give_an_answer(events: list[dict[str, Any]]) -> None:
    """In every form, with busy and idle that are the whole, and nothing below zero."""
    table = table_of(events)

    trace = analyse(table, "any.json")

    assert_sound(trace)
    found = TraceReport(ranks=(trace,))
    said = diagnosed(TraceReport(ranks=(trace,), answer=answer(found)))
    assert as_text(capture_document(said))
    assert as_markdown(capture_document(said))
    assert "NaN" not in as_json(said)


def assert_sound(trace: RankTrace) -> None:
    """The figures fit each other."""
    totals = trace.totals
    if totals.gpu_busy_fraction is not None:
        parts = (
            totals.idle_data_wait_fraction,
            totals.idle_host_bound_fraction,
            totals.idle_sync_fraction,
            totals.idle_other_fraction,
        )
        assert abs(totals.gpu_busy_fraction + sum(part or 0.0 for part in parts) - 1) < 1e-9
    for step in trace.steps:
        for name in step.__struct_fields__:
            value = getattr(step, name)
            assert value is None or value >= 0 or name in ("step", "allreduce_to_optimizer_s")
        if step.comm_s is not None and step.comm_exposed_s is not None:
            assert step.comm_exposed_s <= step.comm_s
        if step.data_wait_exposed_s is not None:
            assert step.data_wait_exposed_s <= (step.data_wait_s or 0.0) + 1e-12
