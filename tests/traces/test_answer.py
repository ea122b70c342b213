"""The answer of a capture in a sentence: what the device does with its time."""

import msgspec
import pytest
from support.captures import rank_of, report_of

from trainperf.traces.answer import answer
from trainperf.traces.results import RankTrace, Straggler, TraceStep, TraceTotals


def told(*ranks: RankTrace, stragglers: tuple[Straggler, ...] = ()) -> str:
    """Of a capture."""
    return answer(report_of(*ranks, stragglers=stragglers))


ANSWERS = {
    "one cause": (
        [rank_of(gpu_busy_fraction=0.6, idle_data_wait_fraction=0.33)],
        "The GPU is idle 40 % of its recorded span, 33 % because it waits for the DataLoader.",
    ),
    "the larger causes, largest first": (
        [rank_of(gpu_busy_fraction=0.5, idle_host_bound_fraction=0.3, idle_sync_fraction=0.2)],
        (
            "The GPU is idle 50 % of its recorded span, 30 % because the host launches too "
            "late and 20 % while the host waits in synchronising calls."
        ),
    ),
    "busy": (
        [rank_of(gpu_busy_fraction=0.97, compute_fraction=0.7)],
        "The GPU is busy 97 % of its recorded span, 70 % computing.",
    ),
    "several ranks by their mean": (
        [
            rank_of(0, gpu_busy_fraction=0.6, idle_host_bound_fraction=0.4),
            rank_of(1, gpu_busy_fraction=0.4, idle_host_bound_fraction=0.6),
        ],
        (
            "On average over 2 ranks the GPU is idle 50 % of its recorded span, 50 % because the "
            "host launches too late."
        ),
    ),
    # Never a word of a GPU.
    "the host where there is no device": (
        [
            RankTrace(
                file="x",
                steps=(TraceStep(step=1, step_s=0.1),),
                totals=TraceTotals(steps=1, step_s=0.1, data_wait_s=0.04, cpu_op_s=0.05),
            )
        ],
        (
            "No device in this trace: a step of 100 ms on the host spends 50.0 ms (50 %) in "
            "operators, 40.0 ms (40 %) waiting for data."
        ),
    ),
    # Instead of shares of nothing.
    "no step": (
        [RankTrace(file="x", totals=TraceTotals(steps=0, step_s=0.0))],
        "No step was recorded.",
    ),
}


@pytest.mark.parametrize(("ranks", "said"), ANSWERS.values(), ids=ANSWERS.keys())
def test_the_answer_names_the_cause(ranks: list[RankTrace], said: str) -> None:
    """In a sentence."""
    assert told(*ranks) == said


def test_a_step_that_takes_longer_on_the_device_is_said_to() -> None:
    """Its share could not be checked against the step time of the host."""
    rank = rank_of(comm_exposed_s=0.05)
    steps = (TraceStep(step=1, step_s=0.1, device_span_s=0.2),)
    lagging = msgspec.structs.replace(rank, steps=steps)

    assert "A step of 200 ms on the device spends 50.0 ms (25 %)" in told(lagging)


@pytest.mark.parametrize(("wait_s", "ends"), [(0.01, True), (0.001, False)])
def test_who_is_waited_for_is_said_where_it_is_worth_a_word(wait_s: float, *, ends: bool) -> None:
    """10 ms in each of two steps of 100; some rank is always last."""
    late = tuple(
        Straggler(step=step, rank=3, wait_s=wait_s, transfer_s=0.001, point="backward")
        for step in (1, 2)
    )

    said = told(rank_of(0), rank_of(3), stragglers=late)

    assert said.endswith("Other ranks wait up to 10.0 ms per step for rank 3.") is ends
    assert ("wait" in said) is ends
