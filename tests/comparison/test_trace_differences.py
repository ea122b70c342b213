"""Traces of two runs: where the difference went."""

from typing import Any

import msgspec
import pytest

from trainperf.comparison.trace_differences import trace_differences
from trainperf.traces.capture_files import CaptureFacts, CaptureReport
from trainperf.traces.results import Kernel, Operator, RankTrace, TraceStep, TraceTotals
from trainperf.traces.thresholds import THRESHOLDS


def capture(
    rank: int | None = 0, *, attention_s: float = 0.0, idle_s: float | None = 0.0, **known: Any
) -> CaptureReport:
    """Two steps of ten milliseconds on a device."""
    steps = tuple(
        TraceStep(step=n, step_s=0.01, gpu_busy_s=0.008, compute_s=0.008, idle_data_wait_s=idle_s)
        for n in range(2)
    )
    trace = RankTrace(
        file=f"rank{rank}.json",
        rank=rank,
        steps=steps,
        totals=TraceTotals(steps=2, step_s=0.01),
        top_operators=(
            Operator(name="aten::mm", calls=2, self_device_s=0.008, self_cpu_s=0.001),
            Operator(name="aten::softmax", calls=2, self_device_s=attention_s, self_cpu_s=0.0),
        ),
    )
    facts = CaptureFacts(first_step=0, first_index=0, complete_steps=2)
    return CaptureReport(capture=facts, ranks=(msgspec.structs.replace(trace, **known),))


OTHERS = tuple(
    Operator(name=f"aten::{n}", calls=2, self_device_s=0.01, self_cpu_s=0.0)
    for n in range(THRESHOLDS.rows)
)
"""As many operators as are listed, of 5 ms a step each."""


def gemm(total_s: float) -> Kernel:
    """Of two steps together."""
    return Kernel(name="gemm", calls=2, total_s=total_s, fraction=1.0, tensor_cores=True)


def test_the_largest_difference_comes_first_per_step() -> None:
    """Softmax went from 3 to 1 ms a step, waiting for data from 2 ms to nothing."""
    found = trace_differences(
        [capture(attention_s=0.006, idle_s=0.002)], [capture(attention_s=0.002)]
    )

    assert [(one.kind, one.name) for one in found] == [
        ("time", "idle: data wait"),
        ("operator", "aten::softmax"),
    ]
    assert [(one.before_s, one.after_s) for one in found] == [
        (0.002, 0.0),
        pytest.approx((0.003, 0.001)),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # A step without a figure is not one of zero; an operator that is gone is.
        ([capture(attention_s=0.002, idle_s=None)], [capture(attention_s=0.002, idle_s=0.002)]),
        # One is not enough.
        ([], [capture(attention_s=0.1)]),
        # An older analysis has no list of kernels.
        ([capture()], [capture(top_kernels=(gemm(0.002),))]),
    ],
    ids=["a figure", "a capture", "kernels"],
)
def test_what_is_not_measured_on_one_side_is_no_difference(
    before: list[CaptureReport], after: list[CaptureReport]
) -> None:
    """Nothing is explained by it."""
    assert trace_differences(before, after) == ()


def test_what_is_not_among_the_top_operators_is_not_known() -> None:
    """Twenty others took longer on one side: it took less than the last, not nothing."""
    found = trace_differences([capture(top_operators=OTHERS)], [capture(attention_s=0.024)])

    softmax = next(one for one in found if one.name == "aten::softmax")
    assert (softmax.before_s, softmax.after_s, softmax.below) == (0.005, 0.012, "before")


def test_a_difference_of_unknown_direction_is_not_listed() -> None:
    """Softmax took 4 ms a step, and afterwards less than 5 ms: nobody knows whether it gained."""
    softmax = capture(attention_s=0.008).ranks[0].top_operators[-1]
    told, hidden = capture(top_operators=(*OTHERS[:-1], softmax)), capture(top_operators=OTHERS)

    for sides in ((told, hidden), (hidden, told)):
        found = trace_differences([sides[0]], [sides[1]])
        assert {one.name for one in found} == {OTHERS[-1].name}


def test_kernels_are_compared_where_both_sides_list_them() -> None:
    """Of 3 and 1 ms a step."""
    before, after = (capture(top_kernels=(gemm(total_s),)) for total_s in (0.006, 0.002))

    (kernel,) = trace_differences([before], [after])
    assert (kernel.kind, kernel.name) == ("kernel", "gemm")
    assert (kernel.before_s, kernel.after_s) == pytest.approx((0.003, 0.001))


def test_one_rank_is_compared_with_itself() -> None:
    """Only rank 1 was traced afterwards, as slow as before; rank 0 has another share of work."""
    zero, one = (capture(n, attention_s=n / 100).ranks[0] for n in (0, 1))
    both = msgspec.structs.replace(capture(), ranks=(zero, one))

    assert trace_differences([both], [capture(1, attention_s=0.01)]) == ()
