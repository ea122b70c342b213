"""The bench of who is late: what it plants, and what it takes for the truth."""

from collections import Counter

import pytest

from scripts.bench.late import JudgedFit, matrix_of, predictions, truth_of, working
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


def test_a_part_of_a_matrix_has_every_place_and_every_rank() -> None:
    """Half of it: each place with two of four ranks, each rank at three of six places."""
    plan = matrix_of("plain", 4, [100], healthy=2, every=2)
    alone = [fit.sleeps[0] for fit in plan if len(fit.sleeps) == 1]

    assert Counter(place for _, place, _ in alone) == dict.fromkeys(PLAIN, 2)
    assert Counter(rank for rank, _, _ in alone) == dict.fromkeys(range(4), 3)


def test_work_is_the_same_in_all_fits_and_leaves_the_sleeps_as_they_are() -> None:
    """Else a healthy fit would be no measure of one with a late rank."""
    plan = matrix_of("plain", 2, [20], healthy=2)
    busy = working(plan, 1.0)

    assert len({(fit.products, fit.base_s) for fit in busy}) == 1
    assert busy[0].products > 0
    assert [fit.sleeps for fit in busy] == [fit.sleeps for fit in plan]


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


def judged(name: str, kind: str, step_s: float, planted: list[tuple[int, str]]) -> JudgedFit:
    """A fit that was judged right, predicted as 12 ms."""
    return JudgedFit(
        loop="plain",
        ranks=2,
        name=name,
        kind=kind,
        planted=planted,
        named=planted,
        work_s=0.01,
        sleeps=2 if kind == "two slow ranks" else len(planted),
        right=True,
        size_right=True,
        off_s=0.0,
        step_s=step_s,
        without_s=0.012,
        who="same",
    )


def test_a_prediction_is_held_against_healthy_fits_and_not_against_a_rank_that_sleeps_on() -> None:
    """Of two slow ranks in one place the earlier one sleeps in the predicted step too."""
    fits = [
        judged("healthy", "healthy", 0.014, []),
        judged("late", "20 ms", 0.033, [(1, "forward")]),
        judged("both", "two slow ranks", 0.053, [(1, "optimizer")]),
    ]
    (row,) = predictions(fits)

    assert row["name"] == "late"
    assert row["off"] == pytest.approx(0.012 / 0.014 - 1)
