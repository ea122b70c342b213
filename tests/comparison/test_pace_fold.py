"""Long runs whose paces are few."""

import numpy as np
from support.runs import make_step

from trainperf.analysis.run.job_block import JobBlock
from trainperf.comparison.pace_fold import MOST, PaceFold
from trainperf.core.steps.block import StepBlock, StepSchema


def fed(number: int, timed_every: int) -> PaceFold:
    """Steps of a block each thousand, so many of them, whose pace is the step's number."""
    fold, schema = PaceFold(), StepSchema(("pace_ns",))
    for start in range(0, number, 1000):
        steps = [
            make_step(
                index,
                facts={"pace_ns": 1.0 + index if index % timed_every == 0 else None},
                forward=1.0 + index,
            )
            for index in range(start, start + 1000)
        ]
        fold.observe(JobBlock.of([StepBlock.from_records(steps, schema)]))
    return fold


def test_a_long_run_keeps_its_paces_where_they_were() -> None:
    """Of 20,000 steps an eighth is kept, of their 200 timings all: each step at its own pace."""
    steps = fed(20_000, 100).steps()

    assert steps is not None
    assert MOST / 2 <= len(steps.steps) <= MOST
    middle = slice(100, -100)
    expected = steps.steps[middle] - steps.steps[middle][0]
    shown = steps.paces[middle] - steps.paces[middle][0]
    assert np.allclose(shown, expected, atol=0.1)


def test_a_reading_of_waiting_is_of_the_steps_since_the_one_before() -> None:
    """9 ms of three steps of 10 ms; of two that were read one by one only the second waited."""
    fold, schema = PaceFold(), StepSchema(("pace_ns", "waited_ns"))
    waited_ns = [None, None, 9e6, 0, 5e6, None]
    steps = [
        make_step(index, facts={"pace_ns": 1.0, "waited_ns": waited_ns[index % 6]}, forward=10.0)
        for index in range(24)
    ]
    fold.observe(JobBlock.of([StepBlock.from_records(steps, schema)]))
    paced = fold.steps()

    assert paced is not None
    assert np.allclose(paced.waited[:6], [0.3, 0.3, 0.3, 0, 0.5, 0.225])
    assert paced.waited[-1] == 0
    assert len(paced.undisturbed().steps) == 5


def test_a_run_without_timings_has_no_paces() -> None:
    """Nothing is assumed."""
    assert PaceFold().steps() is None
    assert fed(1000, 100).steps() is None
