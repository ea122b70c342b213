"""Intervals of a speed-up, and what they decide."""

import pytest

from trainperf.core.stats.verdict import MARGIN, verdict_of


@pytest.mark.parametrize(
    ("low", "high", "margin", "verdict"),
    [
        # Five per cent hold what two do not.
        (0.97, 1.04, 0.05, "equal"),
        (1.05, 1.2, MARGIN, "faster"),
        (0.8, 0.95, MARGIN, "slower"),
        (0.99, 1.01, MARGIN, "equal"),
        (1.005, 1.015, MARGIN, "equal"),
        (0.985, 0.995, MARGIN, "equal"),
        (1.015, 1.025, MARGIN, "faster"),
        (0.97, 1.01, MARGIN, "undecided"),
        (0.5, 2.0, MARGIN, "undecided"),
    ],
)
def test_equal_is_shown_and_undecided_is_not(
    low: float, high: float, margin: float, verdict: str
) -> None:
    """The whole interval within the margin, or wholly on one side of 1; or nothing is shown."""
    assert verdict_of(low, high, margin) == verdict
