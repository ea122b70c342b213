"""Intervals of a speed-up, and what they decide."""

import pytest

from trainperf.core.stats.verdict import repeats_to_decide, verdict_of


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


def test_the_repeats_that_would_decide_follow_from_the_noise() -> None:
    """More noise takes more of them; a change as large as the noise takes few."""
    few = repeats_to_decide(1.10, 0.02)
    more = repeats_to_decide(1.10, 0.05)
    of_nothing = repeats_to_decide(1.0, 0.01)

    assert few is not None
    assert more is not None
    assert of_nothing is not None
    assert 2 <= few < more
    assert of_nothing > 2
    assert repeats_to_decide(1.0, 0.5) is None
