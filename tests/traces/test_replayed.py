"""What event marks would have read on the devices of recorded traces: the real probe, replayed.

The truth beside it is of kernels alone, as `test_reference.py` has it.
"""

import functools

import pytest
from support.replayed import ReplayedFit
from support.traces import TRACES, needs_traces

from trainperf.traces.rank_report import analyse
from trainperf.traces.reader import read
from trainperf.traces.results import TraceStep


pytestmark = needs_traces

RANKS = [f"dlrm_v100_8ranks/rank{rank}" for rank in range(8)]
TAIL_ABOVE_MS = {
    "ddp_a100_rank0of2": 0.004,
    "ddp_mi300x_rank0of8_rccl": 0.004,
    "dlrm_a100_rank3of8": 0.004,
    "ddp_v100_rank1of2_no_overlap": 0.05,
    **dict.fromkeys(RANKS, 0.03),
}
"""By how much the marks may read more: what the reducer computes between gradient and launch."""


@functools.cache
def replayed(name: str) -> tuple[ReplayedFit, tuple[TraceStep, ...]]:
    """A trace as the probe sees it, and its own steps."""
    path = TRACES / f"{name}.pt.trace.json.gz"
    table = read(path)
    return ReplayedFit(table), analyse(table, path.name, lanes=False).steps


@pytest.mark.parametrize("name", TAIL_ABOVE_MS)
def test_the_all_reduce_tail_is_that_of_the_kernels(name: str) -> None:
    """From the last gradient to where the reducer waits: microseconds more, and never less."""
    fit, steps = replayed(name)
    for ours_ms, step in zip(fit.ms("tail_ns"), steps, strict=True):
        truth_ms = (step.allreduce_tail_s or 0.0) * 1e3
        assert -0.001 <= ours_ms - truth_ms <= TAIL_ABOVE_MS[name]


@pytest.mark.parametrize("name", ["resnet50_v100_workers0", "list_root_2021"])
def test_a_stall_is_the_wait_with_nothing_to_do(name: str) -> None:
    """To 2 % over the steps: the device still works for a moment behind the last launch."""
    fit, steps = replayed(name)
    truth_ms = sum((step.data_wait_exposed_s or 0.0) * 1e3 for step in steps)
    assert sum(fit.ms("data_stall_ns")) == pytest.approx(truth_ms, rel=0.02)


@pytest.mark.parametrize("name", ["resnet50_v100_workers0", "list_root_2021"])
def test_a_copy_to_an_idle_device_is_read_with_its_launch(name: str) -> None:
    """17 to 23 % more than the copy itself, where it is of 19 MB; the meter's page says so."""
    fit, steps = replayed(name)
    for ours_ms, step in zip(fit.ms("h2d_device_ns"), steps, strict=True):
        assert 1.16 <= ours_ms / ((step.h2d_s or 0.0) * 1e3) <= 1.24


def test_copies_of_bytes_are_all_launch_and_those_of_another_stream_are_not_read() -> None:
    """What the meter's page says of small batches, and of a copy stream."""
    small, small_steps = replayed(RANKS[0])
    assert small.ms("h2d_device_ns")[0] > 5 * (small_steps[0].h2d_s or 0.0) * 1e3

    aside, aside_steps = replayed("dlrm_a100_rank3of8")
    for ours_ms, step in zip(aside.ms("h2d_device_ns"), aside_steps, strict=True):
        assert ours_ms < 0.2 * (step.h2d_s or 0.0) * 1e3


@pytest.mark.parametrize(
    ("name", "ahead"),
    [
        ("ddp_mi300x_rank0of8_rccl", True),  # its kernels run 21 to 38 ms behind, of 16 ms a step
        ("ddp_a100_rank0of2", False),  # 20 ms without a kernel before each update
        ("ddp_v100_rank1of2_no_overlap", False),
        ("resnet50_v100_workers0", False),
    ],
)
def test_the_lead_tells_who_waits_for_whom(name: str, ahead: bool) -> None:  # noqa: FBT001 a parameter
    """More than a step's three marks where the host is ahead, one at most where it is not."""
    leads = replayed(name)[0].leads()
    assert (leads[-1] > 3) is ahead
    assert ahead or max(leads) <= 1
