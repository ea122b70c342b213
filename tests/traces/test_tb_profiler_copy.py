"""Copies for torch-tb-profiler, judged by its own parser: what it said, and what it says now."""

import gzip
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.traces import TRACES, needs_traces
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset
from torch_tb_profiler.consts import NODE_PROCESS_PATTERN, WORKER_PATTERN
from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.event_parser import ProfileRole

from trainperf.core.errors import TraceError
from trainperf.traces.capture_files import tb_copy
from trainperf.traces.tb_profiler_copy import normalise


pytestmark = pytest.mark.filterwarnings("ignore:The copy keyword is deprecated")
"""Of the plugin under pandas 3."""

EXPOSED_US = {
    "ddp_a100_rank0of2": [10_164, 10_540, 18_856],
    "ddp_mi300x_rank0of8_rccl": [11_885, 11_955, 11_443],
    "dlrm_a100_rank3of8": [9_704, 12_311, 14_484, 14_588, 19_110, 17_724],
    "ddp_v100_rank1of2_no_overlap": [59_630, 59_518, 59_560, 59_566, 119_069],
}
"""Communication per step that no computation hides: reference values of two implementations."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The plugin logs a line for every event it cannot place."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def parsed(path: Path) -> RunProfileData:
    """What the plugin makes of a file."""
    return RunProfileData.parse("worker", None, str(path), str(path.parent))


def copied(trace: Path, folder: Path) -> Path:
    """The copy of a trace."""
    copy = folder / "copy.pt.trace.json.gz"
    normalise(trace, copy)
    return copy


def content(path: Path) -> dict[str, Any]:
    """A gzipped trace, by the standard library."""
    with gzip.open(path) as file:
        whole: dict[str, Any] = json.load(file)
    return whole


def written(path: Path, events: list[Any], **beside: object) -> Path:
    """A trace of these events, which stand before everything else."""
    path.write_text(json.dumps({"traceEvents": events, **beside}))
    return path


def event(name: str, cat: str, ts: float, dur: float, **args: object) -> dict[str, Any]:
    """An event on the only thread."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


STEP = event("ProfilerStep#3", "user_annotation", 0, 1000)


@needs_traces
@pytest.mark.parametrize(
    "name",
    [
        "ddp_a100_rank0of2",
        "ddp_mi300x_rank0of8_rccl",
        pytest.param("dlrm_a100_rank3of8", marks=(pytest.mark.slow, pytest.mark.beside)),
        pytest.param("ddp_v100_rank1of2_no_overlap", marks=(pytest.mark.slow, pytest.mark.beside)),
    ],
)
def test_communication_is_told_from_computation_to_the_microsecond(
    tmp_path: Path, name: str
) -> None:
    """Step by step; what of it no computation hides is a reference value."""
    found = parsed(copied(TRACES / f"{name}.pt.trace.json.gz", tmp_path))

    steps = found.comm_overlap_costs
    assert [round(step.communication - step.overlap) for step in steps] == EXPOSED_US[name]


class Sleepy(Dataset[torch.Tensor]):
    """Takes 10 ms an item."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.ones(4)


def test_time_in_the_loader_is_there(tmp_path: Path) -> None:
    """A trace recorded here and now: 20 ms a batch, of which the plugin sees nothing as it is."""
    trace = tmp_path / "raw.pt.trace.json"
    with profile(activities=[ProfilerActivity.CPU]) as running:
        loader = iter(DataLoader(Sleepy(), batch_size=2))
        for number in range(3):
            with record_function(f"ProfilerStep#{number}"):
                next(loader).sum()
    running.export_chrome_trace(str(trace))

    raw, found = parsed(trace), parsed(copied(trace, tmp_path))

    assert raw.avg_costs.costs[ProfileRole.DataLoader] == 0
    assert raw.recommendations == []
    assert 19_000 < found.avg_costs.costs[ProfileRole.DataLoader] < 60_000
    assert "high time cost on input data loading" in found.recommendations[0]


def test_modules_of_a_lightning_trace_are_kept(tmp_path: Path) -> None:
    """The key that makes the plugin drop them goes; any other framework's stays."""
    ours = written(tmp_path / "a.json", [STEP], Framework="pytorch-lightning", schemaVersion=1)
    theirs = written(tmp_path / "b.json", [STEP], Framework="other")

    assert list(content(copied(ours, tmp_path))) == ["schemaVersion", "traceEvents"]
    assert content(copied(theirs, tmp_path))["Framework"] == "other"


def test_the_events_come_last_and_flows_are_left_alone(tmp_path: Path) -> None:
    """Where the plugin adds its counters; renaming `fwdbwd` would crash it."""
    flow = {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "pid": 1, "tid": 1, "ts": 1, "id": 7}
    whole = content(
        copied(written(tmp_path / "a.json", [STEP, flow], schemaVersion=1, INFO=[1]), tmp_path)
    )

    assert list(whole) == ["schemaVersion", "INFO", "traceEvents"]
    assert whole["traceEvents"] == [STEP, flow]


def test_categories_of_today_become_those_it_knows(tmp_path: Path) -> None:
    """Calls of every device's runtime and driver; ranges, but for steps and collectives."""
    names = ["cuda_runtime", "cuda_driver", "hip_runtime", "xpu_driver", "user_annotation"]
    events = [event("x", cat, 10 * n, 1) for n, cat in enumerate(names)]
    whole = content(copied(written(tmp_path / "a.json", [STEP, *events]), tmp_path))

    found = [one["cat"] for one in whole["traceEvents"]]
    assert found == ["user_annotation", "runtime", "runtime", "runtime", "runtime", "cpu_op"]


@pytest.mark.parametrize(
    ("collective", "known"),
    [
        ("nccl:all_reduce", "nccl:all_reduce"),
        ("nccl:allreduce", "nccl:all_reduce"),
        ("nccl:_all_gather_base", "nccl:all_gather"),
        ("nccl:reduce_scatter_tensor_coalesced", "nccl:reduce_scatter"),
        ("nccl:reduce", "nccl:reduce"),
        ("nccl:broadcast", "nccl:broadcast"),
        ("nccl:all_to_all", "nccl:all_gather"),
    ],
)
def test_a_kernel_points_at_the_collective_that_launched_it(
    tmp_path: Path, collective: str, known: str
) -> None:
    """By the call's place in time on its thread, whatever number the kernel had."""
    events = [
        STEP,
        event(collective, "user_annotation", 100, 50, **{"External id": 77}),
        event("cudaLaunchKernel", "cuda_runtime", 120, 5, correlation=9, **{"External id": 9}),
        event("cudaLaunchKernel", "cuda_runtime", 200, 5, correlation=10, **{"External id": 10}),
        event("ncclKernel_X", "kernel", 300, 40, correlation=9, **{"External id": 9}),
        event("gemm", "kernel", 300, 90, correlation=10, **{"External id": 10}),
    ]
    copy = copied(written(tmp_path / "a.json", events), tmp_path)

    kernels = [e for e in content(copy)["traceEvents"] if e["cat"] == "kernel"]
    assert [kernel["args"]["External id"] for kernel in kernels] == [77, 10]
    found = parsed(copy)
    assert next(iter(found.comm_node_list)).name == known
    assert [(c.communication, c.overlap) for c in found.comm_overlap_costs] == [(40, 40)]


def test_the_collectives_time_on_the_host_is_shown_and_not_counted(tmp_path: Path) -> None:
    """As an operator of its own; the mark that kernels point at has no length."""
    events = [STEP, event("nccl:all_reduce", "user_annotation", 100, 50, **{"External id": 77})]
    _, host, mark = content(copied(written(tmp_path / "a.json", events), tmp_path))["traceEvents"]

    assert (host["name"], host["cat"], host["dur"]) == ("nccl:all_reduce (host)", "cpu_op", 50)
    assert (mark["name"], mark["dur"]) == ("nccl:all_reduce", 0)
    assert "External id" not in host["args"]


@pytest.mark.parametrize(
    "bad",
    [
        {"ph": "X", "name": "no category", "ts": 1, "dur": 1, "pid": 1, "tid": 1},
        event("time is a word", "cpu_op", "soon", 1),  # type: ignore[arg-type]
        {**event("thread is a word", "cpu_op", 1, 1), "tid": "main"},
        {"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1},
        5,
        None,
    ],
)
def test_an_event_the_plugin_would_fail_on_is_left_out(tmp_path: Path, bad: object) -> None:
    """It would cost it the whole file."""
    trace = written(tmp_path / "a.json", [STEP, bad, event("aten::mm", "cpu_op", 10, 5)])

    found = parsed(copied(trace, tmp_path))

    assert [op.name for op in found.op_list_groupby_name] == ["aten::mm"]


def test_what_was_cut_short_is_copied_as_far_as_it_goes(tmp_path: Path) -> None:
    """As a whole document."""
    whole = written(tmp_path / "a.json", [event("aten::mm", "cpu_op", t, 5) for t in range(99)])
    cut = tmp_path / "b.json"
    cut.write_bytes(whole.read_bytes()[:-300])

    events = content(copied(cut, tmp_path))["traceEvents"]

    assert 95 <= len(events) < 99


def test_what_is_no_trace_leaves_nothing(tmp_path: Path) -> None:
    """Neither a copy nor a draft of one."""
    trace = tmp_path / "a.json"
    trace.write_text("hello")

    with pytest.raises(TraceError):
        normalise(trace, tmp_path / "tb" / "copy.pt.trace.json.gz")
    assert list(tmp_path.rglob("*")) == [trace]


def test_a_copy_is_where_the_plugin_looks_and_names_its_rank(tmp_path: Path) -> None:
    """A folder per capture, because it loads a folder once; the original is not picked up."""
    trace = tmp_path / "traces" / "rank3-step000007-3steps.trace.json.gz"
    copy = tb_copy(trace)

    assert copy == tmp_path / "tb" / "step000007-3steps" / "rank_3.pt.trace.json.gz"
    assert WORKER_PATTERN.match(copy.name)
    worker = NODE_PROCESS_PATTERN.match("rank_3")
    assert worker is not None
    assert worker.groups() == ("rank", "3")
    assert not WORKER_PATTERN.match(trace.name)
