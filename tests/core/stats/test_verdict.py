"""Intervals of a speed-up, and what they decide."""

import math

import pytest

from trainperf.core.stats.verdict import (
    Repeated,
    reach_to_decide,
    reach_to_gate,
    repeats_to_reach,
    verdict_of,
)


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
    single = Repeated(before=1, after=1)
    wanted = reach_to_decide(1.10)
    few, more = (
        repeats_to_reach(noise * single.widening, wanted, single) for noise in (0.02, 0.05)
    )
    of_nothing = repeats_to_reach(0.01 * single.widening, reach_to_decide(1.0), single)

    assert few is not None
    assert more is not None
    assert of_nothing is not None
    assert 2 <= few < more
    assert of_nothing > 2
    assert repeats_to_reach(0.5, reach_to_decide(1.0), single) is None


def test_two_pairs_take_a_third() -> None:
    """5 % apart at 1 % of noise: Student's t of two pairs is far wider than that of three."""
    noise, pairs = 0.01, Repeated(before=2, after=2, in_turns=True)

    assert noise * pairs.widening > reach_to_decide(1.05)
    assert repeats_to_reach(noise * pairs.widening, reach_to_decide(1.05), pairs) == 3


@pytest.mark.parametrize("in_turns", [False, True])
def test_repeats_with_a_large_error_of_their_own_take_many_more(*, in_turns: bool) -> None:
    """Three of 2 % each and 2 % apart: its interval's own formula says how many."""
    runs = Repeated(before=3, after=3, in_turns=in_turns)
    number = repeats_to_reach(0.02 * runs.widening, math.log(1.02), runs)

    assert number is not None
    assert number > 5
    decided = Repeated(before=number, after=number, in_turns=in_turns)
    assert 0.02 * decided.widening <= math.log(1.02)


def test_a_gate_asks_for_its_limit() -> None:
    """4 % slower is to be told from 5 %; 8 % slower only from nothing."""
    assert reach_to_gate(1 / 1.04, 0.05) == pytest.approx(math.log(1.05 / 1.04))
    assert reach_to_gate(1 / 1.08, 0.05) == pytest.approx(math.log(1.08))
