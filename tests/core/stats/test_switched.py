"""Intervals of speed-ups from blocks that take turns."""

import random

import pytest

from trainperf.core.artifacts.trials import NEARLY_NOTHING
from trainperf.core.stats.switched import LOOKS, switched_speedup


def blocks(speedup: float, spread: float, pairs: int, seed: int) -> tuple[list[float], list[float]]:
    """Times per unit of work of so many pairs of blocks, without and with a change."""
    drawn = random.Random(seed)  # noqa: S311 planted noise
    on = [10.0 * (1 + drawn.gauss(0, spread)) for _ in range(pairs)]
    return [10.0 * speedup * (1 + drawn.gauss(0, spread)) for _ in range(pairs)], on


def test_the_interval_contains_the_planted_speedup_at_every_look_together() -> None:
    """Of 300 sequences at most 5 % may miss it at any look: 15, and what chance adds."""
    missed = 0
    for seed in range(300):
        off, on = blocks(1.2, 0.05, LOOKS[-1], seed)
        looks = [switched_speedup(off[:pairs], on[:pairs]) for pairs in LOOKS]
        missed += any(not look.low <= 1.2 <= look.high for look in looks)

    assert missed <= 24


def test_equal_blocks_are_equal_and_it_is_decided() -> None:
    """The whole interval lies within the margin."""
    look = switched_speedup(*blocks(1.0, 0.005, 32, 1))

    assert look.verdict == "equal"
    assert look.decided


def test_a_change_that_is_known_only_roughly_is_not_decided_yet() -> None:
    """The verdict is clear, the number is not."""
    look = switched_speedup(*blocks(2.0, 0.15, 8, 1))

    assert look.verdict == "faster"
    assert not look.decided


@pytest.mark.parametrize("gain", [0.8, 0.97, 1.0])
def test_a_change_that_can_gain_hardly_anything_is_given_no_more_time(gain: float) -> None:
    """Slower or undecided: nobody would keep it, so nobody needs the number."""
    look = switched_speedup(*blocks(gain, 0.02, 16, 1))

    assert look.high <= NEARLY_NOTHING
    assert look.decided


def test_one_pair_shows_nothing() -> None:
    """There is no scatter to judge by."""
    with pytest.raises(ValueError, match="1 pairs: at least 2"):
        switched_speedup([1.0], [1.0])
