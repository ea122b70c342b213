"""The warm-up ends when it is seen to end, and not before."""

import pytest

from trainperf.core.phases import Tag
from trainperf.core.stats.warmup import WarmupDetector


CONSTANT = [50.0] * 100


@pytest.mark.parametrize(
    ("walls_ms", "tags", "least", "most"),
    [
        # Two windows of six must be full before they can agree.
        (CONSTANT, 0, 12, 12),
        # Slow first steps must leave the windows' medians first.
        ([500.0, 400.0, 300.0, 200.0, 150.0, 120.0, *CONSTANT], 0, 13, 20),
        # *No steady state* is a possible answer.
        ([10.0 * 1.1**step for step in range(60)], 0, 60, 60),
        # Profiled steps are slow in their own way and are not looked at.
        (CONSTANT, int(Tag.PROFILED), 100, 100),
    ],
    ids=["constant", "slow at first", "ever slower", "unusual"],
)
def test_the_warm_up_lasts_until_two_windows_agree(
    walls_ms: list[float], tags: int, least: int, most: int
) -> None:
    """So many steps are a part of it."""
    detector = WarmupDetector()
    number = sum(detector.is_warmup(round(wall * 1_000_000), tags) for wall in walls_ms)

    assert least <= number <= most
