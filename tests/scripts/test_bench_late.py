"""The bench of who is late: what it plants, and what it takes for the truth."""

from collections import Counter

import pytest

from scripts.bench.late import matrix_of, truth_of
from scripts.bench.late_ranks import PLAIN, PlannedFit


def test_a_matrix_has_each_rank_at_each_place_with_each_size() -> None:
    """Rank 0 too; healthy fits lie between them, as the machine changes its speed."""
    plan = matrix_of("plain", 2, [5, 20], healthy=4)
    alone = Counter(fit.sleeps[0] for fit in plan if len(fit.sleeps) == 1)
    healthy = [place for place, fit in enumerate(plan) if not fit.sleeps]

    assert set(alone.values()) == {1}
    assert set(alone) == {(r, place, s) for r in (0, 1) for place in PLAIN for s in (0.005, 0.02)}
    assert len(healthy) == 4
    assert healthy != list(range(healthy[0], healthy[0] + 4))
    assert len({fit.name for fit in plan}) == len(plan)


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
