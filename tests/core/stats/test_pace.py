"""Runs on a machine whose speed changes as planted, and what is left of their difference."""

import math
from dataclasses import replace

import numpy as np
import pytest

from trainperf.core.stats.pace import Column, PacedSteps, at_one_pace, paced_steps


def run(
    states: Column,
    *,
    step: float = 1.0,
    slow: float = 1.5,
    sliced: float = 0.0,
    counted: bool = False,
    seed: int = 0,
) -> PacedSteps:
    """400 steps on a machine that takes *states* times as long.

    Args:
        states: Of equal parts of the run.
        step: Its own length.
        slow: How many times as long it is where the machine takes longer, by any amount.
        sliced: Share of the steps during which others have the core for ten steps' time.
        counted: Whether it was counted that they waited.
        seed: Of the scatter.
    """
    scatter = np.random.default_rng(seed)
    slower = np.repeat(states, 400 // len(states))
    walls = step * np.where(slower > 1, slow, 1.0) * np.exp(scatter.normal(0, 0.03, 400))
    others = scatter.random(400) < sliced
    walls += 10 * step * others
    paces = slower * np.exp(scatter.normal(0, 0.05, 400))
    places = np.arange(0, 400, 3)
    waited = np.where(others, 10 * step / walls, 0.0) if counted else None
    steps = paced_steps(walls, places.astype(np.float64), paces[places], waited)
    assert steps is not None
    return steps


FAST, SLOW = np.ones(1), np.full(1, 1.8)
CHANGING = np.array([1.0, 1.8, 1.8, 1.0])
MOSTLY_SLOW = np.array([1.8, 1.8, 1.0, 1.8])


def test_at_one_pace_a_change_is_as_large_as_it_is() -> None:
    """15 % more on a machine that kept its speed: found by 2 % of noise, on which nothing else."""
    paced = at_one_pace(run(FAST), run(FAST, step=1.15, seed=1))
    ratio = paced.interval(0.02)

    assert math.exp(paced.machine) == pytest.approx(1.0, abs=0.02)
    assert ratio.ratio == pytest.approx(1.15, rel=0.02)
    assert 1.05 < ratio.low < 1.15 < ratio.high < 1.28


def test_a_slower_machine_is_no_slower_code() -> None:
    """All steps of the second run take half as long again, as the machine does."""
    paced = at_one_pace(run(FAST), run(SLOW, seed=1))
    ratio = paced.interval(0.02)

    assert math.exp(paced.machine) == pytest.approx(1.8, rel=0.03)
    assert ratio.low < 1 < ratio.high


@pytest.mark.parametrize("slow", [1.0, 1.4, 1.9])
def test_paces_that_both_runs_had_decide_whatever_a_step_minds(slow: float) -> None:
    """One run was mostly at the slow pace, the other at both: 15 % is found, no slope assumed."""
    before, after = run(CHANGING, slow=slow), run(MOSTLY_SLOW, step=1.15, slow=slow, seed=1)
    ratio = at_one_pace(before, after).interval(0.02)

    assert ratio.ratio == pytest.approx(1.15, rel=0.04)
    assert ratio.low > 1


def test_without_a_common_pace_little_is_known() -> None:
    """A slope stands in, between none of the machine's slowness and more than all of it."""
    near, far = (at_one_pace(run(FAST), run(states, seed=1)) for states in (FAST, SLOW))

    assert math.sqrt(far.variance) > 4 * math.sqrt(near.variance)


def test_a_core_that_others_use_now_and_then_widens_the_interval() -> None:
    """Half of the first run's steps wait for it; the pace shows nothing of that."""
    ratio = at_one_pace(run(FAST, sliced=0.5), run(FAST, step=1.15, seed=1)).interval(0.02)

    assert ratio.low < 1.15 < ratio.high
    assert ratio.high / ratio.low > 2


def test_steps_that_waited_for_a_processor_are_set_apart() -> None:
    """Half of either run's steps wait: 15 % is found among the others."""
    before, after = (
        run(FAST, step=step, sliced=0.5, counted=True, seed=seed)
        for seed, step in enumerate((1.0, 1.15))
    )
    ratio = at_one_pace(before.undisturbed(), after.undisturbed()).interval(0.02)

    assert ratio.ratio == pytest.approx(1.15, rel=0.02)
    assert ratio.low > 1.05


def test_a_run_that_always_shared_its_core_is_no_slower_code() -> None:
    """All its steps take twice as long, and wait for half of it."""
    crowded = replace(run(FAST, step=2.0), waited=np.full(400, 0.5))
    quiet = run(FAST, seed=1)
    ratio = at_one_pace(crowded.undisturbed(), quiet.undisturbed()).interval(0.02)
    own = at_one_pace(crowded, quiet, alone=True).interval(0.02)

    assert ratio.low < 1 < ratio.high
    assert own.high < 0.7


def test_where_nearly_all_steps_waited_none_is_set_apart() -> None:
    """A few that did not are no sample of the run."""
    waiting = run(FAST, sliced=0.95, counted=True)

    assert len(waiting.undisturbed().steps) == 400


def test_a_mean_that_moved_farther_than_the_steps_is_not_believed() -> None:
    """A twentieth of the steps moves the mean by a third, no quartile by 3 %."""
    runs = [run(FAST), run(FAST, sliced=0.05, seed=1)]
    means = [math.log(np.exp(each.steps).mean()) for each in runs]
    paced = at_one_pace(*runs)
    ratio = paced.interval(0.02, means[1] - means[0], paced.disagreement(*means))

    assert ratio.ratio > 1.3
    assert ratio.low < 1.05


def test_a_pace_that_was_hardly_timed_says_nothing() -> None:
    """Ten timings label no steps."""
    assert paced_steps(np.ones(400), np.arange(0.0, 400.0, 40), np.ones(10)) is None
