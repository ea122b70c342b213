"""Intervals of speed-ups from blocks that take turns."""

import random

import pytest

from trainperf.core.artifacts.trials import NEARLY_NOTHING
from trainperf.core.stats.verdict import verdict_of
from trainperf.trials.speedup import LOOKS, Block, is_decided, switched_speedup


def blocks(speedup: float, spread: float, pairs: int, seed: int) -> tuple[list[Block], list[Block]]:
    """So many pairs of blocks, without and with a change."""
    drawn = random.Random(seed)  # noqa: S311 planted noise
    on = [Block(10.0 * (1 + drawn.gauss(0, spread))) for _ in range(pairs)]
    return [Block(10.0 * speedup * (1 + drawn.gauss(0, spread))) for _ in range(pairs)], on


def test_the_interval_contains_the_planted_speedup_at_every_look_together() -> None:
    """Of 300 sequences at most 5 % may miss it at any look: 15, and what chance adds."""
    missed = 0
    for seed in range(300):
        off, on = blocks(1.2, 0.05, LOOKS[-1], seed)
        looks = [switched_speedup(off[:pairs], on[:pairs]) for pairs in LOOKS]
        missed += any(not look.low <= 1.2 <= look.high for look in looks)

    assert missed <= 24


@pytest.mark.parametrize(
    ("speedup", "spread", "pairs", "verdict", "decided"),
    [
        (1.0, 0.005, 32, "equal", True),
        (2.0, 0.15, 8, "faster", False),  # known only roughly
        (2.0, 0.02, 16, "faster", True),
        (0.8, 0.02, 16, "slower", True),
        (1.0, 0.15, 8, "undecided", False),  # much may be gained yet
        (0.97, 0.02, 16, "undecided", True),
        (1.0, 0.02, 16, "undecided", True),  # nobody would keep it, so nobody needs the number
    ],
)
def test_a_change_gets_as_much_time_as_it_may_gain(
    speedup: float, spread: float, pairs: int, verdict: str, *, decided: bool
) -> None:
    """More where it is faster and its number rough, none where hardly anything can be gained."""
    look = switched_speedup(*blocks(speedup, spread, pairs, 1))

    assert (verdict_of(look.low, look.high), is_decided(look)) == (verdict, decided)
    assert (look.high <= NEARLY_NOTHING) is (decided and verdict != "faster")
