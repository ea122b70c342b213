"""Captures are judged by the detectors of a run: planted ones, and ones of other people."""

from typing import Any

import pytest
from support.captures import rank_of, report_of
from support.traces import TRACES, needs_traces

from trainperf.analysis.diagnosis.of_capture import account_of, diagnosed
from trainperf.core.findings import Finding
from trainperf.core.loop_kind import LIGHTNING
from trainperf.traces.job_report import report
from trainperf.traces.results import (
    Collective,
    RankTrace,
    Straggler,
    SyncSite,
    TraceStep,
    TraceTotals,
)


SITE = SyncSite(call="aten::item", count=1, total_s=1.0, stack=("train.py(21): step",))


@pytest.mark.parametrize(
    ("given", "cause", "bound"),
    [
        ({"data_wait_s": 0.03, "data_wait_exposed_s": 0.02}, "data_wait", 1 / 0.8),
        # Compiling alters more than the launches: nobody knows a bound.
        ({"idle_host_bound_fraction": 0.5}, "launch_bound", None),
        ({"comm_s": 0.06, "comm_exposed_s": 0.05}, "allreduce_tail", 2.0),
        ({"h2d_s": 0.04, "h2d_overlap_fraction": 0.5}, "transfer", 1 / 0.8),
        ({"idle_sync_fraction": 0.2, "sync_sites": (SITE,)}, "hidden_syncs", 1 / 0.8),
    ],
)
def test_a_capture_has_the_causes_of_a_run_with_amdahls_bound(
    given: dict[str, Any], cause: str, bound: float | None
) -> None:
    """Of a step of 100 ms."""
    (finding,) = diagnosed(report_of(rank_of(**given))).findings

    assert finding.id == cause
    assert finding.gain_upper_bound == (None if bound is None else pytest.approx(bound))
    assert finding.action


@pytest.mark.parametrize(
    "given",
    [
        {"data_wait_s": 0.09, "data_wait_exposed_s": 0.0049},
        {"idle_host_bound_fraction": 0.099},
        {"comm_s": 0.09, "comm_exposed_s": 0.0049},
        {"comm_s": 0.06},
        {"h2d_s": 0.09, "h2d_overlap_fraction": 0.95},
        {"idle_sync_fraction": 0.049},
        {"compute_fraction": 0.9},
    ],
)
def test_what_is_hidden_small_or_ordinary_asks_for_nothing(given: dict[str, Any]) -> None:
    """However long it takes; computing has no finding."""
    found = diagnosed(report_of(rank_of(**given))).findings

    assert [each for each in found if each.fraction != 0.0] == []


@pytest.mark.parametrize(
    ("reads", "waits_s", "ids"),
    [(0.4, 0.01, ["hidden_syncs", "data_wait"]), (0.1, 0.04, ["data_wait", "hidden_syncs"])],
)
def test_the_largest_gain_comes_first(reads: float, waits_s: float, ids: list[str]) -> None:
    """Whatever the order of the detectors."""
    given = {"data_wait_s": waits_s, "data_wait_exposed_s": waits_s}

    found = diagnosed(
        report_of(rank_of(**given, idle_sync_fraction=reads, sync_sites=(SITE,)))
    ).findings

    assert [finding.id for finding in found] == ids


def test_a_gain_that_nobody_knows_comes_after_a_notable_one() -> None:
    """What compiling gains of launches that come too late is not known."""
    given = {"data_wait_s": 0.01, "data_wait_exposed_s": 0.01, "idle_host_bound_fraction": 0.4}

    found = diagnosed(report_of(rank_of(**given))).findings

    assert [finding.id for finding in found] == ["data_wait", "launch_bound"]
    assert found[1].fraction == pytest.approx(0.4)


def test_many_small_collectives_want_larger_messages() -> None:
    """The change follows from what they are."""
    small = Collective(kind="all_reduce", count=4000, total_s=0.5, many_small=True)
    given = {"comm_s": 0.06, "comm_exposed_s": 0.05, "collectives": (small,)}

    (finding,) = diagnosed(report_of(rank_of(**given))).findings

    assert finding.changes[0].id == "larger_messages"
    assert finding.action.startswith("all_reduce runs many times per step on little data")


def test_of_several_ranks_the_one_that_loses_most_is_told() -> None:
    """And which one it is."""
    ranks = [
        rank_of(rank, data_wait_s=wait_s, data_wait_exposed_s=wait_s)
        for rank, wait_s in enumerate([0.01, 0.04, 0.02])
    ]

    (finding,) = diagnosed(report_of(*ranks)).findings

    assert finding.evidence[0].startswith("rank 1: 40.0 ms of 100 ms per step")
    assert finding.fraction == pytest.approx(0.4)


def test_a_straggler_is_the_rank_that_cost_most_over_all_steps() -> None:
    """10 ms in each of two steps of 100: at most 1.11 times faster."""
    late = tuple(
        Straggler(step=step, rank=3, wait_s=0.01, transfer_s=0.001, point="backward")
        for step in (1, 2)
    )

    (finding,) = diagnosed(report_of(rank_of(0), rank_of(3), stragglers=late)).findings

    assert finding.title == "the other ranks wait for rank 3"
    assert finding.gain_upper_bound == pytest.approx(1 / 0.9)


def test_a_wait_that_is_not_worth_it_is_no_finding() -> None:
    """Some rank is always last."""
    late = (Straggler(step=1, rank=1, wait_s=0.001, transfer_s=0.001),)

    assert diagnosed(report_of(rank_of(0), rank_of(1), stragglers=late)).findings == ()


def test_what_ranks_wait_for_each_other_is_not_for_communication_to_save() -> None:
    """Of 50 ms that nothing hides 30 are for rank 1."""
    late = (Straggler(step=1, rank=1, wait_s=0.03, transfer_s=0.02),)
    ranks = [rank_of(rank, comm_s=0.06, comm_exposed_s=0.05) for rank in (0, 1)]

    found = {each.id: each for each in diagnosed(report_of(*ranks, stragglers=late)).findings}

    assert found["straggler"].fraction == pytest.approx(0.3)
    assert found["allreduce_tail"].fraction == pytest.approx(0.2)


def test_a_step_is_as_long_as_the_slower_of_host_and_device() -> None:
    """A device that lags behind takes longer than the marks on the host say."""
    slow = TraceStep(step=1, step_s=0.016, device_span_s=0.019)
    lagging = RankTrace(file="x", steps=(slow,), totals=TraceTotals(steps=1, step_s=0.016))

    assert account_of(lagging).step_s == 0.019


def test_without_a_device_the_wait_is_all_there_is() -> None:
    """Of 40 % in the loader 30 % idle a GPU."""
    (hidden,) = diagnosed(report_of(rank_of(data_wait_s=0.04, data_wait_exposed_s=0.03))).findings
    step = TraceStep(step=1, step_s=0.1)
    totals = TraceTotals(steps=1, step_s=0.1, data_wait_s=0.04)
    (bare,) = diagnosed(report_of(RankTrace(file="x", steps=(step,), totals=totals))).findings

    assert hidden.title.startswith("30 % of the step")
    assert bare.title.startswith("40 % of the step is spent waiting for data")
    assert "device" not in " ".join(bare.evidence)


def test_a_few_steps_of_a_trace_are_enough_to_show_what_they_show() -> None:
    """And smaller parts of them than of a run."""
    rank = rank_of()

    assert account_of(rank).judged
    assert account_of(rank).least == 0.05


def test_advice_is_in_the_words_of_the_loop_where_that_is_known() -> None:
    """`torch.compile` is `torch.compile`, a Trainer's option is its own."""
    capture = report_of(rank_of(idle_sync_fraction=0.2, sync_sites=(SITE,)))

    assert diagnosed(capture, LIGHTNING).findings[0].action.startswith("keep it a tensor")


# -- recorded ------------------------------------------------------------------------------------


def recorded(name: str) -> dict[str, Finding]:
    """What is said of a capture of other people, first things first."""
    return {finding.id: finding for finding in diagnosed(report([TRACES / name])).findings}


RECORDED: dict[str, list[str]] = {
    "ddp_v100_world1.pt.trace.json.gz": [],  # one process communicates with nobody
    "infer_h100_vit.pt.trace.json.gz": ["launch_bound"],
    "ddp_a100_rank0of2.pt.trace.json.gz": ["launch_bound", "allreduce_tail"],
    "ddp_mi300x_rank0of8_rccl.pt.trace.json.gz": ["allreduce_tail"],
    "ddp_v100_rank1of2_no_overlap.pt.trace.json.gz": ["launch_bound", "allreduce_tail"],
    "list_root_2021.pt.trace.json.gz": ["data_wait", "launch_bound"],
    "resnet50_v100_workers0.pt.trace.json.gz": ["data_wait"],
    # Without a GPU nobody knows what is hidden.
    "cpu_only_gloo_rank34of300.pt.trace.json.gz": [],
    "dlrm_v100_8ranks": ["allreduce_tail", "straggler", "data_wait", "launch_bound"],
}


@needs_traces
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_captures_have_these_causes_in_this_order(name: str) -> None:
    """Of other people's trainings."""
    found = recorded(name)
    wait, exposed = found.get("data_wait"), found.get("allreduce_tail")

    assert [*found] == RECORDED[name]
    if "resnet50" in name and wait:  # 59.3 ms per step with the GPU idle, of 175
        assert wait.fraction == pytest.approx(0.339, abs=0.005)
        assert wait.gain_upper_bound == pytest.approx(1 / (1 - 0.339), abs=0.02)
    if "no_overlap" in name and exposed:  # 404 per step; 71 ms of them next to no kernel
        assert "no computation hides 71." in exposed.evidence[0]
        assert exposed.changes[0].id == "larger_messages"
    if "mi300x" in name and exposed:  # what is gone is no longer what the device does
        assert exposed.gain == pytest.approx(1 / (1 - 0.5 * 0.624), rel=0.02)
    if "8ranks" in name:  # ranks 4 and 5 are late; everyone waits for them
        assert found["straggler"].title[-6:] in ("rank 4", "rank 5")
