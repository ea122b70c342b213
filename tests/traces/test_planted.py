"""Every figure of a step against what was planted."""

from typing import Any

import pytest
from support.planted import planted_steps
from support.traces import MS, US, event, launched, mark, step_mark, table_of

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


def test_each_step_has_its_counts_and_the_totals_are_of_the_recorded_span() -> None:
    """Kernels with communication, launches without copies, each `.item()` once.

    The span is from the first to the last work of the steps: 159 ms, of which 100 are busy.
    """
    trace = planted()

    for step in trace.steps:
        assert (step.kernels, step.launches, step.short_kernels) == (4, 4, 0)
        assert (step.sync_calls, step.item_calls) == (1, 1)
        assert (step.h2d_bytes, step.d2h_bytes) == (1_000, 0)
        assert step.h2d_overlap_fraction == 0.0
        assert step.comm_overlap_fraction == pytest.approx(7 / 15)
        assert step.tensor_core_fraction == pytest.approx(14 / 40)
    totals = trace.totals
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


def test_collectives_have_bytes_and_a_sync_is_named_by_the_operator_that_asked() -> None:
    """All-reduce moves twice (n - 1) / n of its bytes over the slowest link: the same for two.

    `aten::item` is one site, however many operators it is made of.
    """
    trace = planted()
    (one,), (site,) = trace.collectives, trace.sync_sites

    assert (one.kind, one.count, one.bytes, one.many_small) == ("all_reduce", 2, 4_000, False)
    assert one.total_s == pytest.approx(0.030)
    assert one.exposed_s == pytest.approx(0.016)
    assert one.achieved_bytes_per_s == pytest.approx(4_000 / 0.030)
    assert one.bus_bytes_per_s == pytest.approx(4_000 / 0.030)
    assert (site.call, site.count, site.stack) == ("aten::item", 2, ())
    assert site.total_s == pytest.approx(2 * (8e-3 - 20e-9))


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
ENGINE = {"on": ("1", "2")}
COPY = {"kind": Kind.MEMCPY, "call": "cudaMemcpyAsync"}
TO_DEVICE, TO_HOST = "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)"
ORPHAN = {
    **event("orphan", 4 * MS, 2 * MS, kind=Kind.KERNEL, thread=("0", "7"), stream=7),
    "device": 0,
    "correlation": 999,
}

STEPS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    # One that pins memory may sit in a synchronisation all the time.
    "a thread that only waits holds nothing up": (
        [
            *planted_steps(1),
            event("cudaEventSynchronize", MS, 90 * MS, kind=Kind.RUNTIME, thread=("1", "9")),
        ],
        [{"sync_calls": 1, "sync_s": 0.008 - 20e-9}],
    ),
    # However late it runs: a device that lags two steps behind is no reason to move its work.
    "a device event belongs to the step that launched it": (
        [
            *(step_mark(n, n * 10 * MS, 10 * MS) for n in range(3)),
            *launched(
                *(
                    (f"kernel {n}", n * 10 * MS + MS, (25 + 9 * n) * MS, (n + 1) * MS)
                    for n in range(3)
                )
            ),
        ],
        [{"gpu_busy_s": 0.001}, {"gpu_busy_s": 0.002}, {"gpu_busy_s": 0.003}],
    ),
    # Each kind by itself: two that run beside each other share what is exposed.
    "a kind of collective is exposed where nothing is computed": (
        [
            step_mark(1, 0, 40 * MS),
            *launched(
                ("compute", MS, 2 * MS, 4 * MS),
                (NCCL, MS, 4 * MS, 6 * MS, {"stream": 8}),
                (NCCL, MS, 12 * MS, 2 * MS, {"stream": 8}),
                ("ncclDevKernel_AllGather_RING_LL", MS, 9 * MS, 4 * MS, {"stream": 9}),
            ),
        ],
        [{"comm_exposed_s": 0.008}],
    ),
    # The share of their time during which a kernel computed; none where nothing was copied.
    "copies either way have an overlap of their own": (
        [
            step_mark(1, 0, 20 * MS),
            step_mark(2, 20 * MS, 20 * MS),
            *launched(
                ("compute", MS, 4 * MS, 8 * MS),
                (TO_DEVICE, MS, 2 * MS, 4 * MS, {**COPY, "stream": 8}),
                (TO_HOST, MS, 11 * MS, 4 * MS, {**COPY, "stream": 9, "bytes": 500}),
                ("compute", 21 * MS, 24 * MS, 8 * MS),
            ),
        ],
        [
            {
                "h2d_overlap_fraction": 0.5,
                "d2h_overlap_fraction": 0.25,
                "d2h_s": 0.004,
                "d2h_bytes": 500,
            },
            {"h2d_overlap_fraction": None, "d2h_overlap_fraction": None, "d2h_s": 0.0},
        ],
    ),
    # Also where what it works on was launched before the recording.
    "a wait while the device works is not exposed": (
        [
            step_mark(1, 0, 20 * MS),
            mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", MS, 8 * MS),
            *launched(("busy", 0, 2 * MS, 3 * MS), ("next", 9 * MS, 10 * MS, MS)),
        ],
        [
            {
                "data_wait_s": 0.008,
                "data_wait_exposed_s": 0.005,
                "idle_data_wait_s": 0.004,
                "idle_host_bound_s": 0.001,
            }
        ],
    ),
    # A thread that fetches ahead is not the loop.
    "a loader on another thread blocks nobody": (
        [
            step_mark(1, 0, 20 * MS),
            mark("enumerate(DataLoader)#_Iter.__next__", MS, 8 * MS, thread=("1", "9")),
            event("aten::mm", MS, MS),
        ],
        [{"data_wait_s": 0.0}],
    ),
    # It was launched before the recording; the pause it fills is none.
    "work without a launch is busy time in no step": (
        [
            step_mark(1, 0, 10 * MS),
            ORPHAN,
            *launched(("one", 0, MS, 2 * MS), ("two", MS, 8 * MS, MS)),
        ],
        [{"gpu_busy_s": 0.003, "gpu_idle_s": 0.003}],
    ),
    # Tail 0, and by how much; copies that follow backward do not count as backward.
    "an all-reduce that ends first is early": (
        [
            *planted_steps(1),
            *launched(
                ("volta_sgemm_late", 55 * MS, 75 * MS, 3 * MS, ENGINE),
                ("flatten_copy_kernel", 61 * MS, 78 * MS, 9 * MS, ENGINE),
                first=101,
            ),
        ],
        [{"allreduce_tail_s": 0.0, "allreduce_early_s": 0.008}],
    ),
    # Nor is one that the main thread launches after backward, or that the optimizer awaits not.
    "an all-reduce of the loss after the optimizer is no tail": (
        [
            *planted_steps(1),
            *launched(
                (NCCL, 65 * MS, 71 * MS, MS, {"stream": 20}),
                (NCCL, 92 * MS, 93 * MS, MS, {"stream": 20}),
                (NCCL, 52 * MS, 76 * MS, MS, {"stream": 21, **ENGINE}),
                first=101,
            ),
        ],
        [{"allreduce_tail_s": 0.008, "comm_s": 0.018}],
    ),
    # Lightning gives `step` a closure: its mark is around all, and the update comes last.
    "an optimizer that runs forward and backward itself begins after them": (
        [
            *(one for one in planted_steps(1) if not one["name"].startswith("Optimizer.step")),
            mark("Optimizer.step#SGD.step", 20 * MS, 60 * MS),
        ],
        [
            {
                "optimizer_s": 0.020,
                "allreduce_tail_s": 0.008,
                "allreduce_to_optimizer_s": 0.004,
            }
        ],
    ),
    # 9.999 µs is short, 10 is not.
    "short kernels are counted below ten microseconds": (
        [
            step_mark(1, 0, 20 * MS),
            *launched(("short", 0, MS, 9_999), ("long", 0, 2 * MS, 10 * US)),
        ],
        [{"short_kernels": 1, "short_kernels_s": 9.999e-6}],
    ),
    # From the end of one `Optimizer.step` to the end of the next; an inner one cuts nothing.
    "without step marks the optimizer cuts": (
        [
            event("aten::mm", 0, MS),
            mark("Optimizer.step#Adam.step", 8 * MS, 2 * MS),
            mark("Optimizer.step#Adam.step", 9 * MS, MS // 2),
            mark("Optimizer.step#Adam.step", 28 * MS, 2 * MS),
        ],
        [{"step_s": 0.010}, {"step_s": 0.020}],
    ),
    "without any mark the trace is one window": (
        [event("aten::mm", 5, 10), event("aten::mm", 20, 5)],
        [{"step_s": 20e-9}],
    ),
    # Their union would hide that each is idle: the figures are of one.
    "several devices in one trace are not mixed": (
        [
            step_mark(1, 0, 20 * MS),
            *launched(("a", 0, MS, 2 * MS)),
            *({**one, "device": 1} for one in launched(("b", 0, 5 * MS, MS), first=2)[1:]),
        ],
        [{"gpu_busy_s": 0.002}],
    ),
    # `None`, with a reason, not 0.
    "a step without all-reduce has no tail": (
        [step_mark(1, 0, 20 * MS), *launched(("gemm", 0, MS, MS))],
        [{"allreduce_tail_s": None, "comm_exposed_s": 0.0}],
    ),
    "nothing at all is no error": ([event("[memory]", 0, 0, kind=Kind.MEMORY)], []),
}
"""Events, and fields of each step of them."""

TRACES: dict[str, tuple[dict[str, object], str]] = {
    "a kind of collective is exposed where nothing is computed": (
        {"all_reduce": 0.006, "all_gather": 0.004},
        "",
    ),
    "copies either way have an overlap of their own": (
        {"d2h_s": 0.002, "d2h_overlap_fraction": 0.25},
        "",
    ),
    "work without a launch is busy time in no step": (
        {"gpu_busy_fraction": 5 / 8, "unlaunched_fraction": 1 / 3},
        "",
    ),
    "without step marks the optimizer cuts": (
        {"step_source": "Optimizer.step"},
        "no ProfilerStep marks",
    ),
    "without any mark the trace is one window": (
        {"step_source": "none"},
        "counts as one step",
    ),
    "several devices in one trace are not mixed": ({}, "1 other device worked too"),
    "a step without all-reduce has no tail": (
        {"why allreduce_tail_s": "no all-reduce launched by backward"},
        "",
    ),
    "nothing at all is no error": ({"gpu_busy_fraction": None, "collectives": 0}, ""),
}
"""Of some: totals, exposed seconds by kind, reasons and what else a trace says; a warning."""


@pytest.mark.parametrize("name", STEPS)
def test_a_trace_of_known_events_has_known_figures(name: str) -> None:
    """Step by step, and as a whole."""
    events, expected = STEPS[name]
    whole, warning = TRACES.get(name, ({}, ""))

    trace = analyse(table_of(events), f"{name}.json")

    found = [
        {key: getattr(step, key) for key in fields}
        for step, fields in zip(trace.steps, expected, strict=True)
    ]
    assert found == [pytest.approx(fields) for fields in expected]
    said = {
        "step_source": trace.step_source,
        "collectives": len(trace.collectives),
        **{one.kind: one.exposed_s for one in trace.collectives},
        **{f"why {key}": value for key, value in trace.reasons.items()},
    }
    totals = {key: said[key] if key in said else getattr(trace.totals, key) for key in whole}
    assert totals == pytest.approx(whole)
    assert any(warning in words for words in ("", *trace.warnings)) or not warning


def test_a_copy_into_ordinary_memory_is_a_wait() -> None:
    """`.item()` waits in the copy, not in the synchronisation after it; together they are one."""
    copy, work = launched(("Memcpy DtoH (Device -> Pageable)", 2 * MS, 8 * MS, MS, COPY))
    events = [
        step_mark(1, 0, 20 * MS),
        event("aten::item", MS, 9 * MS),
        {**copy, "duration_ns": 7 * MS},
        work,
        event("cudaStreamSynchronize", 9 * MS + 10, 5_000, kind=Kind.RUNTIME),
        *launched((TO_HOST, 12 * MS, 13 * MS, MS, COPY), first=10),
    ]

    trace = analyse(table_of(events), "item.json")

    (step,), (site,) = trace.steps, trace.sync_sites
    assert (step.sync_calls, step.item_calls) == (1, 1)
    assert step.sync_s == pytest.approx(0.007_005)
    assert (site.call, site.count) == ("aten::item", 1)
    assert site.total_s == pytest.approx(0.007_005)


def memory_event(at_ns: int, total: int, device: int | None = 0, **given: Any) -> dict[str, Any]:
    """The allocator's total after it allocated or released; `None` is the host."""
    on_device = {} if device is None else {"device": device}
    return event("[memory]", at_ns, 0, kind=Kind.MEMORY, total_bytes=total, **on_device, **given)


def test_memory_over_the_trace_and_who_made_its_peak() -> None:
    """The operators around the allocation; the host's own memory is another's."""
    events = [
        step_mark(1, 0, 20 * MS),
        event("train.py(7): step", 0, 9 * MS, kind=Kind.PYTHON),
        event("aten::linear", MS, 5 * MS),
        event("aten::mm", 2 * MS, MS),
        memory_event(MS + 1, 10, reserved_bytes=64),
        memory_event(2 * MS + 1, 100, reserved_bytes=128),
        memory_event(7 * MS, 10, reserved_bytes=128),
        memory_event(8 * MS, 900, None),
        memory_event(3 * MS, 300, 1),
    ]

    trace = analyse(table_of(events), "memory.json")
    second, first = trace.memory

    assert (trace.memory_peak_bytes, second.operators) == (300, ("aten::linear",))
    assert (second.device, second.allocated_bytes, second.reserved_bytes) == (1, (300,), ())
    assert first.at_s == pytest.approx((0.001000001, 0.002000001, 0.007))
    assert (first.allocated_bytes, first.reserved_bytes) == ((10, 100, 10), (64, 128, 128))
    assert (first.peak_bytes, first.peak_s) == (100, pytest.approx(0.002000001))
    assert first.operators == ("aten::mm", "aten::linear")
    assert first.stack == ("train.py(7): step",)


def test_a_long_curve_of_memory_keeps_its_peak() -> None:
    """Of 20,000 events some 500 points; a host alone has a curve of its own."""
    events = [memory_event(US * n, 7 + 900 * (n == 12_345), None) for n in range(20_000)]

    (curve,) = analyse(table_of(events), "memory.json").memory

    assert 400 < len(curve.at_s) <= 500
    assert max(curve.allocated_bytes) == curve.peak_bytes == 907
    assert (curve.device, curve.peak_s) == (None, 0.012345)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "recorded without profile_memory=True"),
        ([event("[memory]", 0, 0, kind=Kind.MEMORY, bytes=4)], "as those of 2021, do not say"),
    ],
)
def test_where_there_is_no_curve_of_memory_it_says_why(
    events: list[dict[str, Any]], why: str
) -> None:
    """And how to record one."""
    trace = analyse(table_of([step_mark(1, 0, MS), *events]), "memory.json")

    assert (trace.memory, trace.memory_peak_bytes) == ((), None)
    assert why in trace.reasons["memory_peak_bytes"]


def test_kernels_by_name() -> None:
    """Those that steps launched, the longest first; their means are over time."""
    few = {"blocks_per_sm": 0.5, "occupancy_percent": 20}
    many = {"blocks_per_sm": 4.5, "occupancy_percent": 100}
    works = launched(
        ("gemm_s16816", MS, 2 * MS, 3 * MS, few),
        ("gemm_s16816", MS + US, 5 * MS, MS, many),
        ("relu", MS + 2 * US, 6 * MS, 4 * MS, {"occupancy_percent": 0}),
        ("Memcpy HtoD", MS + 3 * US, 10 * MS, MS, {"kind": Kind.MEMCPY}),
        ("relu", 25 * MS, 26 * MS, MS),
    )

    gemm, relu = analyse(table_of([step_mark(1, 0, 20 * MS), *works]), "x.json").top_kernels

    assert (gemm.name, gemm.calls, gemm.total_s, gemm.fraction) == ("gemm_s16816", 2, 0.004, 0.5)
    assert (gemm.blocks_per_sm, gemm.occupancy_fraction) == pytest.approx((1.5, 0.4))
    assert gemm.tensor_cores
    assert (relu.name, relu.calls, relu.total_s) == ("relu", 1, 0.004)
    assert (relu.blocks_per_sm, relu.occupancy_fraction, relu.tensor_cores) == (None, None, False)
