"""Every figure of a step against what was planted."""

import pytest
from support.planted import planted_steps
from support.traces import MS, US, Launches, event, mark, step_mark, table_of

from trainperf.traces.event_table import Kind, TraceInfo
from trainperf.traces.rank_report import analyse
from trainperf.traces.results import RankTrace


INFO = TraceInfo(rank=0, world_size=2, device="GPU", process_groups={"0": (0, 1)})


def planted() -> RankTrace:
    """The two planted steps, analysed."""
    return analyse(table_of(planted_steps(), INFO), "planted.json")


EXPECTED_MS = {
    "step_s": (100, 100),
    "device_span_s": (59, 59),
    "gpu_busy_s": (50, 50),
    "gpu_idle_s": (9, 50),
    # The wait for the first batch ended before there was any work.
    "idle_data_wait_s": (0, 20),
    "idle_sync_s": (0, 8 - 20e-6),
    "idle_host_bound_s": (6, 19 + 20e-6),
    "idle_other_s": (3, 3),
    "compute_s": (40, 40),
    "data_wait_s": (20, 20),
    "data_wait_exposed_s": (20, 20),
    "h2d_s": (2, 2),
    "d2h_s": (0, 0),
    "comm_s": (15, 15),
    "comm_exposed_s": (8, 8),
    "allreduce_tail_s": (8, 8),
    "allreduce_early_s": (0, 0),
    "allreduce_to_optimizer_s": (4, 4),
    "short_kernels_s": (0, 0),
    "sync_s": (8 - 20e-6, 8 - 20e-6),
    "forward_s": (10, 10),
    "backward_s": (20, 20),
    "optimizer_s": (8, 8),
    # to 20–21, linear 21.5–31.5, backward 40–60, item 82–90
    "cpu_op_s": (39, 39),
    # 0–20, 70–73, from the end of the call to 74, 80–82, 90–100
    "hole_s": (36 - 0.001, 36 - 0.001),
}


@pytest.mark.parametrize("field", EXPECTED_MS)
def test_the_times_of_each_step(field: str) -> None:
    """To the nanosecond."""
    found = [getattr(step, field) for step in planted().steps]

    assert found == pytest.approx([ms / 1e3 for ms in EXPECTED_MS[field]], abs=1e-10)


def test_the_counts_of_each_step() -> None:
    """Kernels with communication, launches without copies, each `.item()` once."""
    for step in planted().steps:
        assert (step.kernels, step.launches, step.short_kernels) == (4, 4, 0)
        assert (step.sync_calls, step.item_calls) == (1, 1)
        assert (step.h2d_bytes, step.d2h_bytes) == (1_000, 0)
        assert step.h2d_overlap_fraction == 0.0
        assert step.comm_overlap_fraction == pytest.approx(7 / 15)
        assert step.tensor_core_fraction == pytest.approx(14 / 40)


def test_the_totals_are_of_the_recorded_span() -> None:
    """From the first to the last work of the steps: 159 ms, of which 100 busy."""
    totals = planted().totals

    assert totals.steps == 2
    assert totals.gpu_busy_fraction == pytest.approx(100 / 159)
    assert totals.compute_fraction == pytest.approx(80 / 159)
    assert totals.idle_data_wait_fraction == pytest.approx(20 / 159)
    assert totals.comm_overlap_fraction == pytest.approx(7 / 15)
    assert totals.kernels == 4
    assert totals.unlaunched_fraction == 0.0


def test_operators_are_charged_what_they_do_themselves() -> None:
    """Kernels belong to the innermost operator around the launch on the launching thread."""
    trace = planted()
    device = {one.name: one.self_device_s for one in trace.top_operators}
    host = {one.name: one.self_cpu_s for one in trace.top_cpu_operators}
    backward = "autograd::engine::evaluate_function: MmBackward0"

    assert device == pytest.approx(
        {
            backward: 0.070,
            "aten::mm": 0.028,
            "(outside any operator)": 0.012,
            "aten::to": 0.004,
        }
    )
    assert trace.top_operators[0].name == backward
    assert host["aten::linear"] == pytest.approx(0.010)
    assert host["aten::mm"] == pytest.approx(0.010)
    assert host["aten::item"] == pytest.approx(20e-9)
    mm = next(one for one in trace.top_operators if one.name == "aten::mm")
    assert (mm.calls, mm.shapes, mm.few_large) == (2, "[[8, 8], [8, 8]]", True)


def test_collectives_with_bytes_and_bandwidth() -> None:
    """All-reduce moves twice (n - 1) / n of its bytes over the slowest link: the same for two."""
    (one,) = planted().collectives

    assert (one.kind, one.count, one.bytes, one.many_small) == ("all_reduce", 2, 4_000, False)
    assert one.total_s == pytest.approx(0.030)
    assert one.exposed_s == pytest.approx(0.016)
    assert one.achieved_bytes_per_s == pytest.approx(4_000 / 0.030)
    assert one.bus_bytes_per_s == pytest.approx(4_000 / 0.030)


def test_a_sync_is_named_by_the_operator_that_asked() -> None:
    """`aten::item`, however many operators it is made of."""
    (site,) = planted().sync_sites

    assert (site.call, site.count, site.stack) == ("aten::item", 2, ())
    assert site.total_s == pytest.approx(2 * (8e-3 - 20e-9))


def test_a_kind_of_collective_is_exposed_where_nothing_is_computed() -> None:
    """Each kind by itself: two that run beside each other share what is exposed."""
    launches = Launches()
    events = [
        step_mark(1, 0, 40 * MS),
        *launches("compute", MS, 2 * MS, 4 * MS),
        *launches("ncclDevKernel_AllReduce_Sum_f32_RING_LL", MS, 4 * MS, 6 * MS, stream=8),
        *launches("ncclDevKernel_AllReduce_Sum_f32_RING_LL", MS, 12 * MS, 2 * MS, stream=8),
        *launches("ncclDevKernel_AllGather_RING_LL", MS, 9 * MS, 4 * MS, stream=9),
    ]

    trace = analyse(table_of(events), "kinds.json")

    exposed = {one.kind: one.exposed_s for one in trace.collectives}
    assert exposed == pytest.approx({"all_reduce": 0.006, "all_gather": 0.004})
    assert trace.steps[0].comm_exposed_s == pytest.approx(0.008)


def test_copies_either_way_have_an_overlap_of_their_own() -> None:
    """The share of their time during which a kernel computed; none where nothing was copied."""
    launches = Launches()
    copied = {"kind": Kind.MEMCPY, "call": "cudaMemcpyAsync"}
    up, down = "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)"
    events = [
        step_mark(1, 0, 20 * MS),
        step_mark(2, 20 * MS, 20 * MS),
        *launches("compute", MS, 4 * MS, 8 * MS),
        *launches(up, MS, 2 * MS, 4 * MS, stream=8, **copied),
        *launches(down, MS, 11 * MS, 4 * MS, stream=9, bytes=500, **copied),
        *launches("compute", 21 * MS, 24 * MS, 8 * MS),
    ]

    trace = analyse(table_of(events), "copies.json")

    assert [step.h2d_overlap_fraction for step in trace.steps] == [pytest.approx(0.5), None]
    assert [step.d2h_overlap_fraction for step in trace.steps] == [pytest.approx(0.25), None]
    assert [step.d2h_s for step in trace.steps] == pytest.approx([0.004, 0])
    assert trace.steps[0].d2h_bytes == 500
    assert trace.totals.d2h_s == pytest.approx(0.002)
    assert trace.totals.d2h_overlap_fraction == pytest.approx(0.25)


def test_a_copy_into_ordinary_memory_is_a_wait() -> None:
    """`.item()` waits in the copy, not in the synchronisation after it; together they are one."""
    copied = {"kind": Kind.MEMCPY, "call": "cudaMemcpyAsync"}
    copy, work = Launches()("Memcpy DtoH (Device -> Pageable)", 2 * MS, 8 * MS, MS, **copied)
    pinned = Launches()
    pinned.number = 9
    events = [
        step_mark(1, 0, 20 * MS),
        event("aten::item", MS, 9 * MS),
        {**copy, "duration_ns": 7 * MS},
        work,
        event("cudaStreamSynchronize", 9 * MS + 10, 5_000, kind=Kind.RUNTIME),
        *pinned("Memcpy DtoH (Device -> Pinned)", 12 * MS, 13 * MS, MS, **copied),
    ]

    trace = analyse(table_of(events), "item.json")

    (step,), (site,) = trace.steps, trace.sync_sites
    assert (step.sync_calls, step.item_calls) == (1, 1)
    assert step.sync_s == pytest.approx(0.007_005)
    assert (site.call, site.count) == ("aten::item", 1)
    assert site.total_s == pytest.approx(0.007_005)


def test_a_thread_that_only_waits_holds_nothing_up() -> None:
    """One that pins memory may sit in a synchronisation all the time."""
    events = planted_steps(1)
    pinning = {"kind": Kind.RUNTIME, "thread": ("1", "9")}
    events.append(event("cudaEventSynchronize", MS, 90 * MS, **pinning))

    (step,) = analyse(table_of(events), "pin.json").steps

    assert step.sync_calls == 1
    assert step.sync_s == pytest.approx(0.008 - 20e-9)


def test_a_device_event_belongs_to_the_step_that_launched_it() -> None:
    """However late it runs: a device that lags two steps behind is no reason to move its work."""
    launches = Launches()
    events = [step_mark(n, n * 10 * MS, 10 * MS) for n in range(3)]
    for n in range(3):
        events += launches(f"kernel {n}", n * 10 * MS + MS, (25 + 9 * n) * MS, (n + 1) * MS)

    steps = analyse(table_of(events), "late.json").steps

    assert [step.gpu_busy_s for step in steps] == pytest.approx([0.001, 0.002, 0.003])


def test_work_without_a_launch_is_busy_time_in_no_step() -> None:
    """It was launched before the recording; the pause it fills is none."""
    launches = Launches()
    orphan = event("orphan", 4 * MS, 2 * MS, kind=Kind.KERNEL, thread=("0", "7"), stream=7)
    orphan |= {"device": 0, "correlation": 999}
    events = [
        step_mark(1, 0, 10 * MS),
        *launches("one", 0, MS, 2 * MS),
        orphan,
        *launches("two", MS, 8 * MS, MS),
    ]

    trace = analyse(table_of(events), "orphan.json")

    (step,) = trace.steps
    assert step.gpu_busy_s == pytest.approx(0.003)
    assert step.gpu_idle_s == pytest.approx(0.003)
    assert trace.totals.gpu_busy_fraction == pytest.approx(5 / 8)
    assert trace.totals.unlaunched_fraction == pytest.approx(1 / 3)


def test_a_wait_while_the_device_works_is_not_exposed() -> None:
    """Also where what it works on was launched before the recording."""
    launches = Launches()
    events = [
        step_mark(1, 0, 20 * MS),
        mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", MS, 8 * MS),
        *launches("busy", 0, 2 * MS, 3 * MS),
        *launches("next", 9 * MS, 10 * MS, MS),
    ]

    (step,) = analyse(table_of(events), "hidden.json").steps

    assert step.data_wait_s == pytest.approx(0.008)
    assert step.data_wait_exposed_s == pytest.approx(0.005)
    assert step.idle_data_wait_s == pytest.approx(0.004)
    assert step.idle_host_bound_s == pytest.approx(0.001)


def test_a_loader_on_another_thread_blocks_nobody() -> None:
    """A thread that fetches ahead is not the loop."""
    events = [
        step_mark(1, 0, 20 * MS),
        mark("enumerate(DataLoader)#_Iter.__next__", MS, 8 * MS, thread=("1", "9")),
        event("aten::mm", MS, MS),
    ]

    (step,) = analyse(table_of(events), "ahead.json").steps

    assert step.data_wait_s == 0.0


def test_an_all_reduce_that_ends_first_is_early() -> None:
    """Tail 0, and by how much; copies that follow backward do not count as backward."""
    events = planted_steps(1)
    launches = Launches()
    launches.number = 100
    events += launches("volta_sgemm_late", 55 * MS, 75 * MS, 3 * MS, on=("1", "2"))
    events += launches("flatten_copy_kernel", 61 * MS, 78 * MS, 9 * MS, on=("1", "2"))

    (step,) = analyse(table_of(events), "early.json").steps

    assert step.allreduce_tail_s == 0.0
    assert step.allreduce_early_s == pytest.approx(0.008)


def test_an_all_reduce_of_the_loss_after_the_optimizer_is_no_tail() -> None:
    """Nor is one that the main thread launches after backward."""
    events = planted_steps(1)
    launches = Launches()
    launches.number = 100
    events += launches("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 65 * MS, 71 * MS, MS, stream=20)
    events += launches("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 92 * MS, 93 * MS, MS, stream=20)
    # Launched by backward, but not waited for by the optimizer.
    events += launches(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 52 * MS, 76 * MS, MS, stream=21, on=("1", "2")
    )

    (step,) = analyse(table_of(events), "metric.json").steps

    assert step.allreduce_tail_s == pytest.approx(0.008)
    assert step.comm_s == pytest.approx(0.018)


def test_an_optimizer_that_runs_forward_and_backward_itself_begins_after_them() -> None:
    """Lightning gives `step` a closure: its mark is around all, and the update comes last."""
    events = [one for one in planted_steps(1) if not one["name"].startswith("Optimizer.step")]
    events.append(mark("Optimizer.step#SGD.step", 20 * MS, 60 * MS))

    (step,) = analyse(table_of(events), "closure.json").steps

    assert step.optimizer_s == pytest.approx(0.020)
    assert step.allreduce_tail_s == pytest.approx(0.008)
    assert step.allreduce_to_optimizer_s == pytest.approx(0.004)


def test_a_step_without_all_reduce_has_no_tail() -> None:
    """`None` with a reason, not 0."""
    events = [step_mark(1, 0, 20 * MS), *Launches()("gemm", 0, MS, MS)]

    trace = analyse(table_of(events), "alone.json")

    assert trace.steps[0].allreduce_tail_s is None
    assert trace.steps[0].comm_exposed_s == 0.0
    assert trace.reasons["allreduce_tail_s"] == "no all-reduce launched by backward"


def test_short_kernels_are_counted_below_ten_microseconds() -> None:
    """9.999 is short, 10 is not."""
    launches = Launches()
    events = [
        step_mark(1, 0, 20 * MS),
        *launches("short", 0, MS, 9_999),
        *launches("long", 0, 2 * MS, 10 * US),
    ]

    (step,) = analyse(table_of(events), "short.json").steps

    assert (step.short_kernels, step.short_kernels_s) == (1, pytest.approx(9.999e-6))


def test_the_peak_of_memory_and_who_made_it() -> None:
    """The innermost operator around the allocation; the host's own memory is another's."""
    given = {"kind": Kind.MEMORY, "device": 0}
    events = [
        step_mark(1, 0, 20 * MS),
        event("aten::linear", MS, 5 * MS),
        event("aten::mm", 2 * MS, MS),
        event("[memory]", MS + 1, 0, bytes=10, total_bytes=10, **given),
        event("[memory]", 2 * MS + 1, 0, bytes=90, total_bytes=100, **given),
        event("[memory]", 7 * MS, 0, bytes=-90, total_bytes=10, **given),
        event("[memory]", 8 * MS, 0, kind=Kind.MEMORY, bytes=900, total_bytes=900),
    ]

    trace = analyse(table_of(events), "memory.json")

    assert (trace.memory_peak_bytes, trace.memory_peak_operator) == (100, "aten::mm")


def test_without_step_marks_the_optimizer_cuts() -> None:
    """From the end of one `Optimizer.step` to the end of the next; an inner one cuts nothing."""
    events = [
        event("aten::mm", 0, MS),
        mark("Optimizer.step#Adam.step", 8 * MS, 2 * MS),
        mark("Optimizer.step#Adam.step", 9 * MS, MS // 2),
        mark("Optimizer.step#Adam.step", 28 * MS, 2 * MS),
    ]

    trace = analyse(table_of(events), "optimizer.json")

    assert trace.step_source == "Optimizer.step"
    assert [step.step_s for step in trace.steps] == pytest.approx([0.010, 0.020])
    assert any("no ProfilerStep marks" in said for said in trace.warnings)


def test_without_any_mark_the_trace_is_one_window() -> None:
    """And that is said."""
    trace = analyse(table_of([event("aten::mm", 5, 10), event("aten::mm", 20, 5)]), "bare.json")

    assert trace.step_source == "none"
    assert [step.step_s for step in trace.steps] == pytest.approx([20e-9])
    assert any("counts as one step" in said for said in trace.warnings)


def test_several_devices_in_one_trace_are_not_mixed() -> None:
    """Their union would hide that each is idle: the figures are of one, and that is said."""
    launches = Launches()
    second = [{**one, "device": 1} for one in launches("b", 0, 5 * MS, MS)[1:]]
    events = [step_mark(1, 0, 20 * MS), *launches("a", 0, MS, 2 * MS), *second]

    trace = analyse(table_of(events), "two.json")

    assert trace.totals.gpu_busy_s == pytest.approx(0.002)
    assert any("1 other device worked too" in said for said in trace.warnings)


def test_nothing_at_all_is_no_error() -> None:
    """One instant: no device, no operator, no time."""
    events = [event("[memory]", 0, 0, kind=Kind.MEMORY)]

    trace = analyse(table_of(events), "empty.json")

    assert trace.totals.gpu_busy_fraction is None
    assert trace.collectives == ()
