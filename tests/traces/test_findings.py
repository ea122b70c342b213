"""What to look at first, and the answer in a sentence."""

from typing import Any

import msgspec
import pytest

from trainperf.traces.answer import answer
from trainperf.traces.findings import findings, period_s
from trainperf.traces.results import (
    Collective,
    Operator,
    RankTrace,
    Straggler,
    SyncSite,
    TraceReport,
    TraceStep,
    TraceTotals,
)


def rank_of(rank: int = 0, **given: Any) -> RankTrace:
    """Ten steps of 100 ms on a device that computes all the time, but for what is given."""
    step = TraceStep(step=1, step_s=0.1, device_span_s=0.09, gpu_busy_s=0.09, short_kernels=50)
    usual = {"gpu_busy_fraction": 1.0, "compute_fraction": 0.5, "kernels": 100.0, **given}
    beside = {name: usual.pop(name) for name in ("sync_sites", "collectives") if name in usual}
    totals = TraceTotals(steps=10, step_s=0.1, **usual)
    operators = (Operator(name="aten::mm", calls=1, self_device_s=0.45, self_cpu_s=0.1),)
    steps = (step,) * 10
    return RankTrace(
        file="x", rank=rank, steps=steps, totals=totals, top_operators=operators, **beside
    )


def report_of(*ranks: RankTrace, stragglers: tuple[Straggler, ...] = ()) -> TraceReport:
    """With findings and answer, as a folder's report is made."""
    bare = TraceReport(ranks=ranks, stragglers=stragglers)
    found = TraceReport(ranks=ranks, stragglers=stragglers, findings=findings(bare))
    return TraceReport(
        ranks=ranks, stragglers=stragglers, findings=found.findings, answer=answer(found)
    )


@pytest.mark.parametrize(
    ("given", "rule", "gain"),
    [
        ({"data_wait_s": 0.03, "data_wait_exposed_s": 0.02}, "data_wait", 1 / 0.8),
        ({"idle_host_bound_fraction": 0.5}, "host_bound", 2.0),
        ({"comm_s": 0.06, "comm_exposed_s": 0.05}, "exposed_communication", 2.0),
        ({"h2d_s": 0.04, "h2d_overlap_fraction": 0.5}, "transfer", 1 / 0.8),
        (
            {"idle_sync_fraction": 0.2, "sync_sites": (SyncSite(call="x", count=1, total_s=1.0),)},
            "synchronisation",
            1 / 0.8,
        ),
        ({"compute_fraction": 0.9}, "kernels", None),
        ({"comm_s": 0.06}, "host_communication", None),
    ],
)
def test_every_rule_has_its_cause_and_its_bound(
    given: dict[str, Any], rule: str, gain: float | None
) -> None:
    """By Amdahl's law, of a step of 100 ms."""
    (finding,) = report_of(rank_of(**given)).findings

    assert finding.id == rule
    assert finding.gain_upper_bound == (None if gain is None else pytest.approx(gain))
    assert finding.action


@pytest.mark.parametrize(
    "given",
    [
        {"data_wait_s": 0.09, "data_wait_exposed_s": 0.0049},
        {"idle_host_bound_fraction": 0.099},
        {"comm_s": 0.09, "comm_exposed_s": 0.0049},
        {"h2d_s": 0.09, "h2d_overlap_fraction": 0.95},
        {"idle_sync_fraction": 0.2},
        {"compute_fraction": 0.7},
    ],
)
def test_what_is_hidden_or_small_is_no_finding(given: dict[str, Any]) -> None:
    """However long it takes."""
    assert report_of(rank_of(**given)).findings == ()


def test_a_name_without_end_is_cut() -> None:
    """A finding is a sentence, whatever a trace calls its operators."""
    rank = rank_of(compute_fraction=0.9)
    endless = Operator(name="x" * 10_000, calls=1, self_device_s=0.45, self_cpu_s=0.1)
    (finding,) = report_of(msgspec.structs.replace(rank, top_operators=(endless,))).findings

    assert finding.evidence[0] == f"{'x' * 79}… takes 50 % of its busy time"


def test_the_largest_gain_comes_first() -> None:
    """Whatever the order of the rules."""
    given = {"data_wait_s": 0.01, "data_wait_exposed_s": 0.01}
    given |= {"comm_s": 0.06, "comm_exposed_s": 0.05}

    found = report_of(rank_of(**given)).findings

    assert [finding.id for finding in found] == ["exposed_communication", "data_wait"]


def test_many_small_collectives_want_larger_messages() -> None:
    """The action follows from what they are."""
    small = Collective(kind="all_reduce", count=4000, total_s=0.5, many_small=True)
    given = {"comm_s": 0.06, "comm_exposed_s": 0.05, "collectives": (small,)}

    (finding,) = report_of(rank_of(**given)).findings

    assert finding.action.startswith("larger messages: all_reduce runs many times")


def test_of_several_ranks_the_worst_is_told() -> None:
    """And which one it is."""
    ranks = [
        rank_of(rank, data_wait_s=wait_s, data_wait_exposed_s=wait_s)
        for rank, wait_s in enumerate([0.01, 0.04, 0.02])
    ]

    (finding,) = report_of(*ranks).findings

    assert finding.evidence[0].startswith("rank 1: the loop waits 40.0 ms per step")


def test_a_straggler_is_the_rank_that_cost_most_over_all_steps() -> None:
    """10 ms in each of two steps of 100: at most 1.11 times faster."""
    late = tuple(
        Straggler(step=step, rank=3, wait_s=0.01, transfer_s=0.001, point="backward")
        for step in (1, 2)
    )

    found = report_of(rank_of(0), rank_of(3), stragglers=late)

    (finding,) = found.findings
    assert finding.title == "the other ranks wait for rank 3"
    assert finding.gain_upper_bound == pytest.approx(1 / 0.9)
    assert found.answer.endswith("Other ranks wait up to 10.0 ms per step for rank 3.")


def test_a_wait_that_is_not_worth_it_is_no_finding() -> None:
    """Some rank is always last."""
    late = (Straggler(step=1, rank=1, wait_s=0.001, transfer_s=0.001),)

    found = report_of(rank_of(0), rank_of(1), stragglers=late)

    assert found.findings == ()
    assert "wait" not in found.answer


def test_a_step_is_as_long_as_the_slower_of_host_and_device() -> None:
    """A device that lags behind takes longer than the marks on the host say."""
    slow = TraceStep(step=1, step_s=0.016, device_span_s=0.019)

    assert period_s(
        RankTrace(file="x", steps=(slow,), totals=TraceTotals(steps=1, step_s=0.016))
    ) == (0.019)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"gpu_busy_fraction": 0.6, "idle_data_wait_fraction": 0.33},
            "The GPU is idle 40 % of its recorded span, 33 % because it waits for the DataLoader.",
        ),
        (
            {
                "gpu_busy_fraction": 0.5,
                "idle_host_bound_fraction": 0.3,
                "idle_sync_fraction": 0.2,
            },
            (
                "The GPU is idle 50 % of its recorded span, 30 % because the host launches too "
                "late and 20 % while the host waits in synchronising calls."
            ),
        ),
        (
            {"gpu_busy_fraction": 0.97, "compute_fraction": 0.7},
            "The GPU is busy 97 % of its recorded span, 70 % computing.",
        ),
    ],
)
def test_the_answer_names_the_cause(given: dict[str, Any], said: str) -> None:
    """The larger causes, largest first."""
    assert report_of(rank_of(**given)).answer == said


def test_a_step_that_takes_longer_on_the_device_is_said_to() -> None:
    """Its share could not be checked against the step time of the host."""
    rank = rank_of(comm_exposed_s=0.05)
    steps = (TraceStep(step=1, step_s=0.1, device_span_s=0.2),)
    lagging = msgspec.structs.replace(rank, steps=steps)

    assert "A step of 200 ms on the device spends 50.0 ms (25 %)" in report_of(lagging).answer


def test_time_that_a_gpu_waits_for_data_is_not_all_the_wait_for_data() -> None:
    """Of 40 % in the loader 30 % idle the GPU; without a GPU the wait is all there is."""
    (hidden,) = report_of(rank_of(data_wait_s=0.04, data_wait_exposed_s=0.03)).findings
    step = TraceStep(step=1, step_s=0.1)
    totals = TraceTotals(steps=1, step_s=0.1, data_wait_s=0.04)
    (bare,) = report_of(RankTrace(file="x", steps=(step,), totals=totals)).findings

    assert hidden.title == "30 % of the step is spent with the GPU idle, waiting for data"
    assert bare.title == "40 % of the step is spent waiting for data"


def test_several_ranks_are_answered_for_by_their_mean() -> None:
    """40 % and 60 % idle are 50 %."""
    ranks = [
        rank_of(n, gpu_busy_fraction=busy, idle_host_bound_fraction=1 - busy)
        for n, busy in enumerate((0.6, 0.4))
    ]

    assert report_of(*ranks).answer == (
        "On average over 2 ranks the GPU is idle 50 % of its recorded span, 50 % because the host "
        "launches too late."
    )


def test_without_a_device_the_host_is_the_answer() -> None:
    """Never a word of a GPU."""
    step = TraceStep(step=1, step_s=0.1)
    totals = TraceTotals(steps=1, step_s=0.1, data_wait_s=0.04, cpu_op_s=0.05)
    bare = RankTrace(file="x", steps=(step,), totals=totals)

    assert report_of(bare).answer == (
        "No device in this trace: a step of 100 ms on the host spends 50.0 ms (50 %) in "
        "operators, 40.0 ms (40 %) waiting for data."
    )


def test_no_step_is_said() -> None:
    """Instead of shares of nothing."""
    assert report_of(RankTrace(file="x", totals=TraceTotals(steps=0, step_s=0.0))).answer == (
        "No step was recorded."
    )
