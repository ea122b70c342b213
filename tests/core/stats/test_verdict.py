"""Intervals of a speed-up, and what they decide."""

import pytest

from trainperf.core.stats.verdict import verdict_of


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.05, 1.2, "faster"),
        (0.8, 0.95, "slower"),
        (0.99, 1.01, "equal"),
        (1.005, 1.015, "equal"),
        (0.985, 0.995, "equal"),
        (1.015, 1.025, "faster"),
        (0.97, 1.01, "undecided"),
        (0.5, 2.0, "undecided"),
    ],
)
def test_equal_is_shown_and_undecided_is_not(low: float, high: float, verdict: str) -> None:
    """The whole interval within 2 %, or wholly on one side of 1; or nothing is shown."""
    assert verdict_of(low, high) == verdict


def test_a_wider_margin_makes_more_equal() -> None:
    """Five per cent hold what two do not."""
    assert verdict_of(0.97, 1.04, 0.05) == "equal"
