"""The bench of who is late: what it plants, and what it takes for the truth."""

import pytest

from scripts.bench.late import truth_of
from scripts.bench.late_ranks import PlannedFit


@pytest.mark.parametrize(
    ("sleeps", "truth"),
    [
        (((1, "loader", 0.02),), {(1, "data_wait"): 0.02}),
        (((0, "loader", 0.02), (1, "optimizer", 0.02)), {}),
        (((0, "loader", 0.02), (1, "optimizer", 0.05)), {(1, "optimizer"): 0.03}),
    ],
)
def test_who_sleeps_longest_is_late_by_what_it_sleeps_longer(
    sleeps: tuple[tuple[int, str, float], ...], truth: dict[tuple[int, str], float]
) -> None:
    """Two ranks of a plain loop meet once per step."""
    fit = PlannedFit(name="x", loop="plain", steps=72, base_s=0.01, sleeps=sleeps)

    assert truth_of(fit, 2) == pytest.approx(truth)
