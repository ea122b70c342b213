"""New levels and drifts are found; noise that wanders is neither."""

import numpy as np
import pytest

from trainperf.core.stats.changes import LEAST_LEVELS, change_points, drift


def wandering(seed: int, n: int = 200, by: float = 0.15) -> np.ndarray:
    """Levels about 50 of a machine whose speed is a random walk, with noise of 1 %."""
    draws = np.random.default_rng(seed)
    walk = np.cumsum(by / np.sqrt(n) * draws.standard_normal(n))
    return 50 * np.exp(walk + 0.01 * draws.standard_normal(n))


def test_a_new_level_is_found_where_it_begins() -> None:
    """18 % at place 120, on a machine that wanders; within three places."""
    for seed in range(10):
        levels = wandering(seed, by=0.05)
        levels[120:] *= 1.18
        (place,) = change_points(levels)
        assert abs(place - 120) <= 3


def test_two_levels_are_two_changes() -> None:
    """Slower from 60 to 140, e.g. by another process."""
    levels = wandering(0, by=0.03)
    levels[60:140] *= 1.3
    assert [round(place, -1) for place in change_points(levels)] == [60, 140]


def test_a_machine_that_wanders_is_silent() -> None:
    """At most one in fifty such runs is told of: random walks, with heavy-tailed noise."""
    changes = drifts = 0
    for seed in range(150):
        levels = wandering(seed, by=0.3 if seed % 2 else 0.1)
        draws = np.random.default_rng(seed)
        struck = draws.integers(0, 200, 10)
        levels[struck] *= 1 + draws.pareto(1.5, 10)
        changes += bool(change_points(levels))
        drifts += drift(np.arange(200.0), levels) is not None
    assert changes <= 3
    assert drifts <= 3


def test_a_slope_is_a_drift_and_no_change() -> None:
    """30 % over the run, straight."""
    levels = wandering(1, by=0.02) * np.linspace(1.0, 1.3, 200)
    assert change_points(levels) == ()
    assert drift(np.arange(200.0), levels) == pytest.approx(0.3, abs=0.05)


def test_what_grows_to_many_times_is_a_drift_on_a_machine_that_others_use() -> None:
    """From 1 to 6, and single parts of the run are 1.3 times as slow as others."""
    for seed in range(20):
        draws = np.random.default_rng(seed)
        slow = np.repeat(1 + 0.3 * draws.random(32), 8)
        assert 3 < drift(np.arange(256.0), np.linspace(1.0, 6.0, 256) * slow) < 8


def test_a_neighbour_that_comes_and_goes_is_no_drift() -> None:
    """Bursts that double the step, at random."""
    drifts = 0
    for seed in range(150):
        draws = np.random.default_rng(seed)
        busy = np.repeat(draws.random(64) < 0.4, draws.integers(1, 8, 64))[:200]
        levels = np.where(np.resize(busy, 200), 2.0, 1.0) * (1 + 0.02 * draws.standard_normal(200))
        drifts += drift(np.arange(200.0), levels) is not None
    assert drifts == 0


@pytest.mark.parametrize(
    "levels",
    [
        wandering(2, by=0.02) * (1 + 0.3 * (1 - np.exp(-np.arange(200) / 20))),
        np.repeat([50.0, 100.0], LEAST_LEVELS // 2 - 1),
    ],
    ids=["what rises and stops, as a warm-up", "a jump to the double in too few levels"],
)
def test_what_does_not_go_on_is_nothing(levels: np.ndarray) -> None:
    """Neither a change nor a drift."""
    assert change_points(levels) == ()
    assert drift(np.arange(len(levels)) * 1.0, levels) is None
