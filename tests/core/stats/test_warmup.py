"""The warm-up ends when it is seen to end, and not before."""

from trainperf.core.phases import Tag
from trainperf.core.stats.warmup import WarmupDetector


MS = 1_000_000


def warmup_steps(walls_ms: list[float], tags: int = 0) -> int:
    """How many of the steps count as warm-up."""
    detector = WarmupDetector()
    return sum(detector.is_warmup(round(wall * MS), tags) for wall in walls_ms)


def test_constant_steps_need_twelve_to_be_seen_to_be_constant() -> None:
    """Two windows of six must be full before they can agree."""
    assert warmup_steps([50.0] * 100) == 12


def test_slow_first_steps_prolong_the_warmup() -> None:
    """Three steps at ten times the pace must leave the windows' medians first."""
    walls = [500.0, 400.0, 300.0, 200.0, 150.0, 120.0, *[50.0] * 100]

    assert warmup_steps(walls) > 12


def test_a_step_time_that_keeps_growing_never_settles() -> None:
    """*No steady state* is a possible answer."""
    walls = [10.0 * 1.1**step for step in range(60)]

    assert warmup_steps(walls) == 60


def test_unusual_steps_cannot_end_the_warmup() -> None:
    """Profiled steps are slow in their own way and are not looked at."""
    assert warmup_steps([50.0] * 100, tags=int(Tag.PROFILED)) == 100
