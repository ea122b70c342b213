"""Real traces of other people's jobs: every step and every rank equals the reference values.

The values are those of two independent implementations, to the microsecond and to 0.1 %.
"""

import functools
import gzip
import json
from collections import defaultdict

import pytest
from support.traces import TRACES, needs_traces

from trainperf.traces.job_report import report
from trainperf.traces.rank_report import analyse
from trainperf.traces.reader import read
from trainperf.traces.results import RankTrace


pytestmark = needs_traces

SUFFIX = ".pt.trace.json.gz"
DLRM = "dlrm_v100_8ranks"

ALLREDUCE_MS = {
    "ddp_a100_rank0of2": {4: (1.691, 10.164), 5: (2.033, 10.540), 6: (2.131, 18.856)},
    "ddp_mi300x_rank0of8_rccl": {
        15: (11.133, 11.885),
        16: (11.185, 11.955),
        17: (10.690, 11.443),
    },
    "dlrm_a100_rank3of8": {
        1009: (-8.358, 9.704),
        1010: (-7.785, 12.311),
        1011: (-6.099, 14.484),
        1012: (-6.052, 14.588),
        1013: (-5.011, 19.110),
        1014: (-7.080, 17.724),
    },
    "ddp_v100_rank1of2_no_overlap": {
        2: (-22.0, 59.630),
        3: (-22.3, 59.518),
        4: (-23.9, 59.560),
        5: (-21.6, 59.566),
        6: (-20.1, 119.069),
    },
    f"{DLRM}/rank0": {10: (0.999, 5.54)},
    f"{DLRM}/rank1": {10: (0.972, 11.06)},
    f"{DLRM}/rank2": {10: (0.962, 3.22)},
    f"{DLRM}/rank3": {10: (0.927, 9.45)},
    f"{DLRM}/rank4": {10: (0.127, 6.55)},
    f"{DLRM}/rank5": {10: (0.138, 6.21)},
    f"{DLRM}/rank6": {10: (0.967, 3.29)},
    f"{DLRM}/rank7": {10: (0.849, 1.58)},
}
"""Signed all-reduce tail and exposed communication of each step."""

TAIL_MS = {"ddp_v100_rank1of2_no_overlap": 0.05}
EXPOSED_MS = dict.fromkeys((f"{DLRM}/rank{rank}" for rank in range(8)), 0.005)
"""Half of the last digit that the reference gives; elsewhere a microsecond."""

TOTALS = {
    "resnet50_v100_workers0": (176.27, 60.57, 59.36, 69.30, 59.26, 1.92, 0, 0, None, 0, 1462),
    # The reference has 52.23 ms exposed: it takes the device for idle while it finished work that
    # was launched before the recording, during 30.7 ms of the first wait.
    "list_root_2021": (211.74, 49.59, 48.44, 52.23, 47.11, 2.31, 0, 0, None, 0, 1467),
    "ddp_a100_rank0of2": (222.44, 23.84, 17.51, 0, 0, 0, None, 15.63, 15.61, 13.19, 900),
    "ddp_mi300x_rank0of8_rccl": (15.95, 99.50, 34.03, 0, 0, 0, None, 15.73, 25.25, 11.76, 746),
    "ddp_v100_rank1of2_no_overlap": (345.77, 57.74, 35.81, 0, 0, 0, None, 71.47, 0, 71.47, 3874),
    "ddp_v100_world1": (95.55, 98.42, 97.53, 0, 0, 0, None, 0, None, 0, 870),
    "dlrm_a100_rank3of8": (76.83, 83.64, 60.56, 0.07, 0.07, 8.44, 66.90, 27.26, 46.24, 14.65, 1428),
    "infer_h100_vit": (7.89, 16.21, 16.15, 0, 0, 0, None, 0, None, 0, 154),
}
"""Median step, busy and computing per cent, then milliseconds a step and per cent of them."""


@functools.cache
def analysed(name: str) -> RankTrace:
    """One trace, read once for all tests."""
    path = TRACES / f"{name}{SUFFIX}"
    return analyse(read(path), path.name, lanes=False)


CASES = [(name, step) for name, steps in ALLREDUCE_MS.items() for step in steps]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_tail_and_exposed_communication_of_every_step(name: str, number: int) -> None:
    """To a microsecond, or to the last digit of the reference where it has fewer."""
    tail_ms, exposed_ms = ALLREDUCE_MS[name][number]
    step = next(step for step in analysed(name).steps if step.step == number)

    signed_s = step.allreduce_tail_s - step.allreduce_early_s

    assert signed_s * 1e3 == pytest.approx(tail_ms, abs=TAIL_MS.get(name, 0.001))
    assert min(step.allreduce_tail_s, step.allreduce_early_s) == 0
    assert step.comm_exposed_s * 1e3 == pytest.approx(exposed_ms, abs=EXPOSED_MS.get(name, 0.001))


@pytest.mark.parametrize("name", TOTALS)
def test_the_table_of_every_trace(name: str) -> None:
    """Shares of the span of device work launched inside the recorded steps; times a step."""
    totals = analysed(name).totals
    found = (
        totals.step_s * 1e3,
        _percent(totals.gpu_busy_fraction),
        _percent(totals.compute_fraction),
        _ms(totals.data_wait_s),
        _ms(totals.data_wait_exposed_s),
        _ms(totals.h2d_s),
        _percent(totals.h2d_overlap_fraction),
        _ms(totals.comm_s),
        _percent(totals.comm_overlap_fraction),
        _ms(totals.comm_exposed_s),
        totals.kernels,
    )

    # Half of the last digit that is given, or 0.1 %.
    for ours, reference in zip(found, TOTALS[name], strict=True):
        assert ours == (
            None if reference is None else pytest.approx(reference, abs=0.00501, rel=0.001)
        )


@pytest.mark.parametrize("name", [*TOTALS, *(f"{DLRM}/rank{rank}" for rank in range(8))])
def test_idle_time_is_split_without_a_rest(name: str) -> None:
    """Four causes and busy time are the whole span, exactly; each step's causes are its idle."""
    trace = analysed(name)
    totals = trace.totals
    shares = (
        totals.gpu_busy_fraction,
        totals.idle_data_wait_fraction,
        totals.idle_host_bound_fraction,
        totals.idle_sync_fraction,
        totals.idle_other_fraction,
    )

    assert sum(share or 0.0 for share in shares) == pytest.approx(1.0, abs=1e-12)
    for step in trace.steps:
        causes = (
            step.idle_data_wait_s,
            step.idle_host_bound_s,
            step.idle_sync_s,
            step.idle_other_s,
        )
        assert sum(cause or 0.0 for cause in causes) == pytest.approx(step.gpu_idle_s, abs=1e-12)


def test_the_gap_to_the_optimizer() -> None:
    """From the last all-reduce's end to the optimizer's first kernel, where the recipe gives it."""
    gaps_ms = [_ms(step.allreduce_to_optimizer_s) for step in analysed("ddp_a100_rank0of2").steps]
    late_ms = [
        _ms(analysed(f"{DLRM}/rank{n}").steps[0].allreduce_to_optimizer_s) for n in (0, 4, 5)
    ]

    assert gaps_ms == pytest.approx([20.817, 19.862, 19.753], abs=0.001)
    assert late_ms == pytest.approx([0.002, 0.395, 0.387], abs=0.001)


def test_a_quarter_of_the_work_has_no_launch_and_that_is_said() -> None:
    """Busy time, but in no step; a warning says how much."""
    trace = analysed("ddp_mi300x_rank0of8_rccl")

    assert trace.totals.unlaunched_fraction == pytest.approx(968 / 3653)
    assert any("26 % of the device's events have no launch" in said for said in trace.warnings)


def test_kernels_named_generic_are_told_apart() -> None:
    """RCCL's kernels have one name for all; the ranges around them say what they are."""
    kinds = {one.kind: one.count for one in analysed("ddp_mi300x_rank0of8_rccl").collectives}

    assert kinds == {"all_reduce": 6, "broadcast": 6}


def test_many_small_collectives_are_flagged() -> None:
    """404 all-reduces a step are, three are not."""
    (many,) = analysed("ddp_v100_rank1of2_no_overlap").collectives
    few = {one.kind: one.many_small for one in analysed("dlrm_a100_rank3of8").collectives}

    assert (many.kind, many.count, many.many_small) == ("all_reduce", 2020, True)
    assert few == {"all_to_all": False, "all_reduce": False}


def test_the_late_ranks_are_named() -> None:
    """Everyone waits for ranks 4 and 5; of its time the last all-reduce itself takes 69 µs."""
    found = report([TRACES / DLRM])

    assert [trace.rank for trace in found.ranks] == list(range(8))
    assert {late.rank for late in found.stragglers} == {4, 5}
    assert {late.step for late in found.stragglers} == {10}
    assert {late.point for late in found.stragglers} == {"backward"}
    assert max(late.wait_s for late in found.stragglers) == pytest.approx(2.17e-3, abs=1e-6)
    assert "for ranks 4–5" in found.answer


def test_without_a_device_nothing_is_said_to_be_exposed() -> None:
    """Communication from the host's ranges; `None` with a reason where there is nothing to say."""
    trace = analysed("cpu_only_gloo_rank34of300")

    assert trace.device is None
    assert trace.totals.comm_s == pytest.approx(0.178777427)
    assert trace.totals.comm_exposed_s is None
    assert trace.totals.gpu_busy_fraction is None
    assert trace.reasons["comm_exposed_s"] == "no device in this trace"


@pytest.mark.parametrize(
    "name", ["infer_h100_vit", "ddp_v100_world1", "ddp_v100_rank1of2_no_overlap"]
)
def test_kernels_and_the_peak_of_memory_are_those_of_the_events(name: str) -> None:
    """In these all kernels belong to steps; summed by name with the standard library alone."""
    events = json.loads(gzip.decompress((TRACES / f"{name}{SUFFIX}").read_bytes()))["traceEvents"]
    spent_us = defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            spent_us[event["name"]].append(event["dur"])
    memory = [event["args"] for event in events if event["name"] == "[memory]"]
    totals = [args["Total Allocated"] for args in memory if args["Device Type"] == 1]
    ours, whole_us = analysed(name), sum(map(sum, spent_us.values()))

    longest = sorted((-sum(lengths), name) for name, lengths in spent_us.items())
    assert [kernel.name for kernel in ours.top_kernels] == [name for _, name in longest][:20]
    for kernel in ours.top_kernels:
        assert kernel.calls == len(spent_us[kernel.name])
        assert kernel.total_s == pytest.approx(sum(spent_us[kernel.name]) / 1e6)
        assert kernel.fraction == pytest.approx(kernel.total_s * 1e6 / whole_us)
    assert ours.memory_peak_bytes == max(totals, default=None)
    assert [max(curve.allocated_bytes) for curve in ours.memory] == (
        [max(totals)] if totals else []
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else fraction * 100
