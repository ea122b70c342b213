"""Which collective was it, and how much did it move?"""

import numpy as np
import pytest
from support.traces import MS, Launches, event, mark, step_mark, table_of

from trainperf.traces.event_table import Kind, TraceInfo
from trainperf.traces.metrics.collectives import kind_of
from trainperf.traces.rank_report import analyse


INFO = TraceInfo(world_size=4, process_groups={"0": (0, 1, 2, 3), "1": (0, 1)})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long)", "all_reduce"),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)",
            "all_reduce",
        ),
        ("ncclDevKernel_AllGather_RING_LL", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "other"),
        ("void vllm::cross_device_reduce_1stage<__half, 2>", "all_reduce"),
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:_reduce_scatter_base", "reduce_scatter"),
        ("nccl:all_to_all", "all_to_all"),
        ("gloo:all_reduce", "all_reduce"),
        ("gloo:gather", "gather"),
        ("c10d::allreduce_", "all_reduce"),
        ("all_to_allv", "all_to_all"),
        ("allreduce_coalesced", "all_reduce"),
    ],
)
def test_kinds_by_name(name: str, kind: str) -> None:
    """Kernels old and new, ranges, and arguments."""
    assert kind_of(name) == kind


def generic(**given: object) -> list[dict[str, object]]:
    """A step with one kernel whose name says nothing."""
    events = Launches()("ncclDevKernel_Generic", 3 * MS, 5 * MS, 2 * MS, stream=4, **given)
    return [step_mark(1, 0, 20 * MS), *events]


def ranged(stream: str) -> dict[str, object]:
    """A broadcast's range on the device."""
    around = mark("nccl:broadcast", 5 * MS, 3 * MS, thread=("0", stream))
    return {**around, "kind": Kind.DEVICE_ANNOTATION}


ABOVE = event("record_param_comms", 2 * MS, 3 * MS, collective="reduce_scatter")
SENDS = [
    step_mark(1, 0, 20 * MS),
    *Launches()("ncclDevKernel_SendRecv", 3 * MS, 5 * MS, 2 * MS, stream=4),
]


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        # A kernel's argument counts before what is around it.
        ([*generic(collective="allreduce"), ranged("4")], "all_reduce"),
        ([*generic(), ranged("4")], "broadcast"),
        # A range of another stream says nothing.
        ([*generic(), ranged("9")], "other"),
        ([*generic(), ranged("9"), ABOVE], "reduce_scatter"),
        # NCCL runs both with one kernel; the range above the launch tells.
        (SENDS, "send_recv"),
        ([*SENDS, mark("nccl:all_to_all", 2 * MS, 3 * MS)], "all_to_all"),
    ],
)
def test_what_a_kernel_does_not_say_is_told_by_what_is_around_it(
    events: list[dict[str, object]], kind: str
) -> None:
    """Its argument, the range on its stream, the call above its launch, then its name."""
    assert [one.kind for one in analyse(table_of(events), "x").collectives] == [kind]


@pytest.mark.parametrize(
    ("name", "group", "moved", "bus_share"),
    [
        ("allreduce", "0", 4_000, 2 * 3 / 4),
        ("allreduce", "1", 4_000, 2 * 1 / 2),
        ("_allgather_base", "0", 16_000, 3 / 4),
        ("_reduce_scatter_base", "0", 4_000, 3 / 4),
        ("all_to_all", "1", 4_000, 1 / 2),
        ("broadcast", "0", 4_000, None),
    ],
)
def test_bytes_and_bandwidth(name: str, group: str, moved: int, bus_share: float | None) -> None:
    """Of an all-gather, what comes out; over the bus, what has to cross the slowest link."""
    given = {"collective": name, "group": group, "elements": 1_000, "dtype": "Float"}

    (one,) = analyse(table_of(generic(**given), INFO), "x").collectives

    assert one.bytes == moved
    assert one.achieved_bytes_per_s == pytest.approx(moved / 0.002)
    expected = None if bus_share is None else pytest.approx(moved / 0.002 * bus_share)
    assert one.bus_bytes_per_s == expected


def test_bytes_that_are_not_given_are_not_invented() -> None:
    """Nor is a bandwidth."""
    (one,) = analyse(table_of(generic(collective="allreduce"), INFO), "x").collectives

    assert (one.bytes, one.achieved_bytes_per_s, one.bus_bytes_per_s) == (None, None, None)


def test_collectives_of_the_host_are_those_begun_in_a_step() -> None:
    """Gloo has no kernels: never 0 exposed."""
    events = [
        step_mark(1, 0, 20 * MS),
        mark("gloo:all_reduce", 5 * MS, 4 * MS, thread=("1", "8")),
        mark("gloo:all_reduce", 7 * MS, 4 * MS, thread=("1", "9")),
        mark("gloo:all_reduce", 30 * MS, 4 * MS, thread=("1", "9")),
    ]

    trace = analyse(table_of(events), "x")

    assert trace.steps[0].comm_s == pytest.approx(0.006)
    assert trace.steps[0].comm_exposed_s is None
    assert [(one.kind, one.count) for one in trace.collectives] == [("all_reduce", 2)]


def test_a_python_stack_says_where_the_host_waits() -> None:
    """The innermost line of the user's own, not torch's."""
    events = [
        step_mark(1, 0, 20 * MS),
        event("train.py(12): main", 0, 20 * MS, kind=Kind.PYTHON),
        event("train.py(40): log", MS, 10 * MS, kind=Kind.PYTHON),
        event("torch/_tensor.py(9): item", 2 * MS, 8 * MS, kind=Kind.PYTHON),
        event("<built-in method item>", 3 * MS, 6 * MS, kind=Kind.PYTHON),
        event("aten::item", 3 * MS, 6 * MS),
        event("cudaStreamSynchronize", 4 * MS, 4 * MS, kind=Kind.RUNTIME),
        *Launches()("gemm", 0, MS, MS),
    ]

    (site,) = analyse(table_of(events), "x").sync_sites

    assert (site.call, site.stack) == ("aten::item", ("train.py(40): log", "train.py(12): main"))
    assert site.total_s == pytest.approx(0.004)


def test_what_the_profiler_waits_for_at_the_end_is_no_site() -> None:
    """It stops outside of the steps."""
    events = [
        step_mark(1, 0, 20 * MS),
        event("cudaDeviceSynchronize", 21 * MS, 40 * MS, kind=Kind.RUNTIME),
        *Launches()("gemm", 0, MS, 50 * MS),
    ]

    trace = analyse(table_of(events), "x")

    assert trace.sync_sites == ()
    assert trace.steps[0].sync_calls == 0
    assert np.isclose(trace.totals.gpu_busy_fraction or 0.0, 1.0)


def test_process_groups_are_told_apart_with_what_each_exposes() -> None:
    """2 ms of group 0 are alone; 3 ms of group 1 have 1 ms of compute next to them."""
    launches = Launches()
    events = [
        step_mark(1, 0, 20 * MS),
        *launches("ncclDevKernel_AllReduce_Sum_f32", 1 * MS, 5 * MS, 2 * MS, stream=4, group="0"),
        *launches("ncclDevKernel_AllGather_RING_LL", 2 * MS, 8 * MS, 3 * MS, stream=5, group="1"),
        *launches("gemm", 3 * MS, 10 * MS, 4 * MS, stream=7),
    ]
    groups = analyse(table_of(events, INFO), "x").process_groups

    assert [(group.name, group.members, group.count) for group in groups] == [
        ("1", 2, 1),
        ("0", 4, 1),
    ]
    assert [(group.total_s, group.exposed_s) for group in groups] == [
        (0.003, 0.002),
        (0.002, 0.002),
    ]
