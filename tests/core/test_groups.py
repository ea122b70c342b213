"""Groups and runs: small tables that many places read."""

import pytest

from trainperf.core.formatting.units import runs_of
from trainperf.core.groups import grouped, largest, summed


PAIRS = [("b", 1), ("a", 2), ("b", 3)]


def test_pairs_are_put_together_by_name_in_the_order_in_which_names_come() -> None:
    """As lists and as sums; of nothing there is nothing."""
    assert [*grouped(PAIRS).items()] == [("b", [1, 3]), ("a", [2])]
    assert [*summed(PAIRS).items()] == [("b", 4), ("a", 2)]
    assert summed([("a", 0.5), ("a", 0.25)]) == {"a": 0.75}
    assert summed([]) == {}
    assert (largest(PAIRS, "none"), largest([], "none")) == ("b", "none")


@pytest.mark.parametrize(
    ("numbers", "runs"),
    [([], []), ([3], [(3, 3)]), ([16, 2, 0, 1, 1], [(0, 2), (16, 16)]), ([-1, 0], [(-1, 0)])],
)
def test_neighbours_are_a_run(numbers: list[int], runs: list[tuple[int, int]]) -> None:
    """In any order, and named twice."""
    assert runs_of(numbers) == runs
