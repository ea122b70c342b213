"""Runs on a machine whose speed changes as planted, and what is left of their difference."""

import math

import numpy as np
import pytest

from trainperf.core.stats.pace import Column, PacedWindows, at_one_pace, paced_windows


def run(states: Column, *, step: float = 1.0, slope: float = 0.7, seed: int = 0) -> PacedWindows:
    """400 steps; the machine takes *states* times as long, the steps that to the power *slope*."""
    scatter = np.random.default_rng(seed)
    slower = np.repeat(states, 400 // len(states))
    walls = step * slower**slope * np.exp(scatter.normal(0, 0.03, 400))
    paces = slower * np.exp(scatter.normal(0, 0.05, 400))
    paces[np.arange(400) % 3 != 0] = np.nan
    windows = paced_windows(walls, paces)
    assert windows is not None
    return windows


FAST, SLOW = np.ones(1), np.full(1, 1.8)
CHANGING = np.array([1.0, 1.8, 1.8, 1.0])


def test_at_one_pace_a_change_is_as_large_as_it_is() -> None:
    """15 % more on a machine that kept its speed: found by 2 % of noise, on which nothing else."""
    paced = at_one_pace(run(FAST), run(FAST, step=1.15, seed=1))
    ratio = paced.interval(0.02)

    assert math.exp(paced.machine) == pytest.approx(1.0, abs=0.02)
    assert ratio.ratio == pytest.approx(1.15, rel=0.02)
    assert 1.05 < ratio.low < 1.15 < ratio.high < 1.25


def test_a_slower_machine_is_no_slower_code() -> None:
    """All steps of the second run take half as long again, as the machine does."""
    paced = at_one_pace(run(FAST), run(SLOW, seed=1))
    ratio = paced.interval(0.02)

    assert math.exp(paced.machine) == pytest.approx(1.8, rel=0.03)
    assert ratio.low < 1 < ratio.high


def test_twice_as_long_is_slower_whatever_the_machine_did() -> None:
    """It was slower itself, by less than that."""
    assert at_one_pace(run(FAST), run(SLOW, step=2.2, seed=1)).interval(0.02).low > 1


@pytest.mark.parametrize("slope", [0.1, 0.7, 1.0])
def test_the_slope_is_learned_where_the_speed_changed_inside_a_run(slope: float) -> None:
    """Steps that hardly mind a slow machine, and such as do: both are compared at one pace."""
    paced = at_one_pace(run(CHANGING, slope=slope), run(FAST, step=1.15, slope=slope, seed=1))

    assert math.exp(paced.steps) == pytest.approx(1.15, rel=0.04)


def test_the_farther_the_paces_are_apart_the_less_is_known() -> None:
    """The interval widens with the machine's change of speed."""
    near = at_one_pace(run(FAST), run(np.full(1, 1.1), seed=1))
    far = at_one_pace(run(FAST), run(SLOW, seed=1))

    assert far.variance > 4 * near.variance


def test_a_pace_that_was_hardly_timed_says_nothing() -> None:
    """Ten timings make no windows."""
    paces = np.full(400, np.nan)
    paces[::40] = 1.0

    assert paced_windows(np.ones(400), paces) is None
