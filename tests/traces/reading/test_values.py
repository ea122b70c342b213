"""What the numbers and texts of an event become: exact times, ids that join, one kind per thing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trace_files import (
    kernel,
    labels,
    operator,
    operators,
    read_events,
    read_text,
    text,
)

from trainperf.traces.event_table import NONE, Kind


def printed(ns: int) -> str:
    """Nanoseconds as profilers print them: decimal microseconds."""
    return f"{ns // 1000}.{ns % 1000:03d}"


@given(st.lists(st.integers(0, 2**60), min_size=1, max_size=5), st.integers(0, 2**53))
def test_times_are_exact_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, starts: list[int], duration: int
) -> None:
    """Also those since 1970, which a float of 64 bits rounds to a quarter of a microsecond."""
    events = ",".join(
        f'{{"ph":"X","name":"x","ts":{printed(start)},"dur":{printed(duration)}}}'
        for start in starts
    )

    table = read_text(tmp_path_factory.mktemp("times"), f"[{events}]")

    assert (table.start_ns + table.base_ns).tolist() == sorted(starts)
    assert table.duration_ns.tolist() == [duration] * len(starts)


def test_times_of_mixed_types_are_exact(tmp_path: Path) -> None:
    """Tools write 5.000 as 5: whole and broken numbers stand side by side, since 1970 too."""
    small = [operator("a", 5), operator("b", 5.001)]
    large = (
        '[{"ph":"X","name":"a","ts":1720000000123456,"dur":1},'
        '{"ph":"X","name":"b","ts":1720000000123456.789,"dur":1}]'
    )

    assert read_events(tmp_path, small).start_ns.tolist() == [0, 1]
    assert read_text(tmp_path, large).start_ns.tolist() == [0, 789]


@pytest.mark.parametrize("first", ["1", "1.5", "1720000000123456.789"])
def test_a_time_no_clock_shows_is_dropped_whatever_stands_beside_it(
    tmp_path: Path, first: str
) -> None:
    """Found by fuzzing: whole numbers alone, one of them huge, asked for more digits for ever."""
    starts = [first, str(2**62), str(-(2**70))]
    events = [f'{{"ph":"X","name":"x","ts":{start},"dur":1}}' for start in starts]

    table = read_text(tmp_path, f"[{','.join(events)}]")

    assert len(table) == 1
    assert table.losses.dropped_events == 2


def test_a_time_since_1970_late_in_the_file_is_exact(tmp_path: Path) -> None:
    """The reader starts again with all digits when the first chunks did not need them."""
    late = '{"ph":"X","name":"late","ts":1720000000123456.789,"dur":1.001}'
    body = f"[{json.dumps(operators(15_000))[1:-1]},{late}]"

    table = read_text(tmp_path, body)

    assert len(body) > 2**20
    assert int(table.start_ns[-1]) + table.base_ns == 1_720_000_000_123_456_789


def kinds(*categories: str | None) -> list[dict[str, Any]]:
    """An event of each category, in this order."""
    return [{**operator("x", place), "cat": each} for place, each in enumerate(categories)]


def memory(ts: int, device: int, size: int, total: int, **category: str) -> dict[str, Any]:
    """The allocator's event; device type 0 is the host."""
    args = {"Device Type": device, "Device Id": 3, "Bytes": size, "Total Allocated": total}
    args |= {"Total Reserved": 2 * total} if device else {}
    return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, **category, "args": args}


def frame(ts: int, number: int, parent: int | None) -> dict[str, Any]:
    """A call of a Python function."""
    args = {"Python id": number, "Python parent id": parent}
    return {**operator("f", ts), "cat": "python_function", "args": args}


RANGES = (
    "ProfilerStep#7",
    "Optimizer.step#SGD.step",
    "Optimizer.zero_grad#SGD.zero_grad",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "DistributedDataParallel.forward",
    "nccl:all_reduce",
)
"""What PyTorch opens: in 2021 one category held them and the operators."""

COLUMNS: dict[str, tuple[list[dict[str, Any]], dict[str, list[Any]]]] = {
    # `Kernel` of 2021 and `kernel` of today are the same; what is not known is `OTHER`.
    "categories of operators and ranges": (
        kinds("cpu_op", "Operator", "user_annotation", "gpu_user_annotation"),
        {"kind": [Kind.CPU_OP, Kind.CPU_OP, Kind.ANNOTATION, Kind.DEVICE_ANNOTATION]},
    ),
    "categories of calls": (
        kinds("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "Runtime"),
        {"kind": [Kind.RUNTIME] * 5},
    ),
    "categories of the device": (
        kinds("kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset", "cuda_sync"),
        {
            "kind": [
                *(Kind.KERNEL, Kind.KERNEL, Kind.MEMCPY, Kind.MEMCPY),
                *(Kind.MEMSET, Kind.MEMSET, Kind.DEVICE_SYNC),
            ]
        },
    ),
    "categories of the rest": (
        kinds("python_function", "overhead", "Trace", "something new", None),
        {"kind": [Kind.PYTHON, Kind.OVERHEAD, Kind.OTHER, Kind.OTHER, Kind.OTHER]},
    ),
    **{
        f"ranges in {category}": (
            [{**operator(name, place), "cat": category} for place, name in enumerate(RANGES)],
            {"kind": [Kind.ANNOTATION] * len(RANGES)},
        )
        for category in ("Operator", "cpu_op", "user_annotation")
    },
    # Start and `baseTimeNanoseconds` together align the ranks of one host.
    "the clock of the profiler": (
        [operator("a", 20.5), operator("b", 10.25)],
        {"start_ns": [0, 10_250]},
    ),
    # Profilers write 0 where there is nothing to join; two zeros must not join.
    "an id of zero": (
        [kernel("k", 1, correlation=0, **{"External id": 0})],
        {"correlation": [NONE], "external": [NONE]},
    ),
    # Years and devices differ in where; a wait for all streams has none.
    "streams": (
        [
            {**kernel("k", 1), "args": {"stream": 20}},
            {**kernel("k", 2), "args": {}},
            {**kernel("k", 3), "tid": "stream 7", "args": {}},
            {**kernel("k", 4), "args": {"stream": 2**32 - 1}},
            {**kernel("k", 5), "args": {"stream": None}},
        ],
        {"stream": [20, 7, 7, NONE, NONE]},
    ),
    # Some runtimes write the stream they launched to; that is not where they ran.
    "events of the host": (
        [
            {**operator("hipLaunchKernel", 1, stream=3, device=1), "cat": "cuda_runtime"},
            operator("aten::mm", 2, stream=3),
        ],
        {"stream": [NONE] * 2, "device": [NONE] * 2},
    ),
    # Releases are negative; memory of the host is no device's.
    "memory": (
        [
            memory(1, 1, 512, 2**40, cat="cpu_instant_event"),
            memory(2, 1, -512, 0),
            memory(3, 0, 4, 4),
            {"ph": "i", "name": "Iteration Start", "ts": 0},
        ],
        {
            "kind": [Kind.MEMORY] * 3,
            "bytes": [512, -512, 4],
            "total_bytes": [2**40, 0, 4],
            "reserved_bytes": [2**41, 0, NONE],
            "device": [3, 3, NONE],
        },
    ),
    # To three digits; what no kernel can have is not believed.
    "how a kernel fills the device": (
        [
            kernel("k", 1, **{"blocks per SM": 0.296296, "est. achieved occupancy %": 75}),
            kernel("k", 2, **{"blocks per SM": 300, "est. achieved occupancy %": None}),
            kernel("k", 3, **{"blocks per SM": "many", "est. achieved occupancy %": -3}),
            kernel("k", 4, **{"blocks per SM": 1e9}),
        ],
        {
            "blocks_per_sm": [np.float16(0.296296), 300, NONE, NONE],
            "occupancy_percent": [75, NONE, NONE, NONE],
        },
    ),
    # The outermost has none: `null` in the file.
    "frames of Python": (
        [frame(1, 1, None), frame(2, 2, 1)],
        {"python_id": [1, 2], "python_parent": [NONE, 1]},
    ),
    # Traces of 2021 write both, for one and the same thread.
    "a thread whose number is a text": (
        [{**operator("a", 1), "tid": "11"}, {**operator("b", 2), "tid": 11}],
        {"thread": [0, 0]},
    ),
}
"""Events, and what their columns hold."""


@pytest.mark.parametrize("case", COLUMNS)
def test_an_event_is_read_as_it_was_meant(case: str, tmp_path: Path) -> None:
    """In whatever year, and on whatever device it was written."""
    events, expected = COLUMNS[case]

    table = read_events(tmp_path, events)

    assert {name: getattr(table, name).tolist() for name in expected} == expected


IDS = [1, 2**30, 2**31 - 2, 2**31, 2**32 - 1, 2**63 + 1, 2**64 - 2]
"""Correlations as CUDA counts them, and as others did."""


def test_correlations_of_any_size_join_what_they_joined(tmp_path: Path) -> None:
    """A launch and its kernel keep one number, different ones different numbers."""
    launches = [
        {
            **kernel(f"launch {i}", i, correlation=i),
            "cat": "cuda_runtime",
            "args": {"correlation": i},
        }
        for i in IDS
    ]
    events = [{**event, "ts": row} for row, event in enumerate(launches)]
    events += [kernel(f"kernel {i}", 100 + row, correlation=i) for row, i in enumerate(IDS)]

    codes = read_events(tmp_path, events).correlation.tolist()

    assert codes[: len(IDS)] == codes[len(IDS) :]
    assert len(set(codes)) == len(IDS)
    assert min(codes) > NONE


def test_shapes_are_one_text_however_they_are_printed(tmp_path: Path) -> None:
    """The same shapes are the same code, so that operators can be grouped by them."""
    events = [operator("a", 1, **{"Input Dims": [[32, 3], []]}), operator("b", 2)]

    dense, airy = read_events(tmp_path, events), read_text(tmp_path, text(events, indent=3))

    assert [dense.texts[code] for code in dense.shapes[:1]] == ["[[32,3],[]]"]
    assert airy.texts == dense.texts
    assert dense.shapes[1] == NONE


def test_what_a_collective_says_of_itself_is_kept(tmp_path: Path) -> None:
    """Its name, group, elements and type; other kernels have none of it."""
    args = {"Collective name": "allreduce", "Process Group Name": "0", "dtype": "BFloat16"}
    events = [kernel("nccl", 1, **args, **{"In msg nelems": 5_000_000_000}), kernel("gemm", 2)]

    table = read_events(tmp_path, events)

    told = [table.texts[column[0]] for column in (table.collective, table.group, table.dtype)]
    assert told == ["allreduce", "0", "BFloat16"]
    assert table.elements.tolist() == [5_000_000_000, NONE]
    assert table.collective[1] == NONE


def test_a_parent_stands_before_its_children(tmp_path: Path) -> None:
    """Of two that start together the longer is first; of two as long, the one opened first."""
    events = [
        operator("child", 1, 2, **{"External id": 3}),
        operator("parent", 1, 9, **{"External id": 1}),
        operator("twin", 1, 2, **{"External id": 2}),
    ]

    assert labels(read_events(tmp_path, events)) == ["parent", "twin", "child"]


def test_what_the_trace_says_of_itself(tmp_path: Path) -> None:
    """Rank, world and groups; the device is the one whose kernels there are."""
    info = read_events(tmp_path, [kernel("gemm", 1), operator("aten::mm", 0)]).info

    assert (info.rank, info.world_size, info.device) == (3, 8, "Device B")
    assert info.process_groups == {"0": (0, 1, 2)}


@pytest.mark.parametrize(
    "said",
    ['"../../etc"', "null", "[1]", '{"rank": "../x", "world_size": 1.5, "pg_config": {"a": 1}}'],
)
def test_a_rank_that_is_no_number_is_no_rank(tmp_path: Path, said: str) -> None:
    """What a file says of itself is data, and never anything else."""
    body = (
        f'{{"distributedInfo": {said}, "deviceProperties": {said}, '
        f'"baseTimeNanoseconds": {said}, "traceEvents": {json.dumps(operators(3))}}}'
    )

    table = read_text(tmp_path, body)

    assert (table.info.rank, table.info.world_size, table.info.device) == (None, None, None)
    assert table.base_ns == 1_000_500


@pytest.mark.parametrize("row", [0, 9_999], ids=["first", "last"])
def test_a_column_that_one_event_fills_is_none_in_all_others(tmp_path: Path, row: int) -> None:
    """Chunks before and behind that event know nothing of it."""
    events = operators(10_000)
    events[row]["args"]["Input Dims"] = [[2]]

    table = read_events(tmp_path, events)

    assert np.flatnonzero(table.shapes != NONE).tolist() == [row]
    assert set(table.shapes.tolist()) == {NONE, 0}
