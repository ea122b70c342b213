"""Whether the run is as fast after a capture as it was before."""

import numpy as np
import pytest

from trainperf.analysis.summary import captures as of_captures
from trainperf.analysis.summary.lead_steps import LeadSteps
from trainperf.analysis.summary.schema import CaptureAftermath
from trainperf.core.phases import Tag
from trainperf.core.steps.block import StepBlock, StepSchema


def captures(
    walls_ms: list[float], tags: dict[int, Tag], block: int = 4096
) -> list[CaptureAftermath]:
    """Captures in steps of these wall times, with some of them tagged."""
    fold = LeadSteps()
    rows = [
        [index, 0, int(tags.get(index, 0)), 1, wall * 1e6, *[0] * 7]
        for index, wall in enumerate(walls_ms)
    ]
    for first in range(0, len(rows), block):
        steps = StepBlock.from_rows(StepSchema(), rows[first : first + block])
        fold.observe(steps, steps.wall_ns)
    return list(of_captures.captures(fold))


def profiled(*indices: int) -> dict[int, Tag]:
    """Tags of a capture."""
    return dict.fromkeys(indices, Tag.PROFILED)


@pytest.mark.parametrize("block", [1, 7, 4096])
def test_a_run_that_stays_slower_is_noticed(block: int) -> None:
    """20 % slower since the capture, however the file was read."""
    walls = [50.0] * 100 + [400.0] * 3 + [60.0] * 100

    (found,) = captures(walls, profiled(100, 101, 102), block)

    assert (found.first_step, found.last_step) == (100, 102)
    assert (found.before_s, found.after_s) == (0.05, 0.06)
    assert found.slower


def test_a_run_that_is_as_before_is_not_noticed() -> None:
    """The profiled steps themselves are slow, and do not count."""
    (found,) = captures([50.0] * 100 + [400.0] * 3 + [50.0] * 100, profiled(100, 101, 102))

    assert found.after_s == found.before_s
    assert not found.slower


def test_a_difference_within_the_noise_is_not_noticed() -> None:
    """6 % with quartiles that overlap say nothing."""
    rng = np.random.default_rng(0)
    before, after = rng.normal(50, 10, 100).tolist(), rng.normal(53, 10, 100).tolist()

    (found,) = captures([*before, 400.0, *after], profiled(100))

    assert not found.slower


def test_only_the_fifty_steps_on_either_side_are_compared() -> None:
    """A drift that began long before is not the profiler's doing."""
    walls = [10.0] * 500 + [50.0] * 50 + [400.0] + [50.0] * 50 + [90.0] * 500

    (found,) = captures(walls, profiled(550))

    assert (found.before_s, found.after_s) == (0.05, 0.05)


def test_unusual_neighbours_are_not_compared() -> None:
    """The step after the capture was recompiled, and the one before collected garbage."""
    walls = [50.0] * 60 + [500.0] * 10 + [400.0] + [500.0] * 10 + [50.0] * 60
    tags = {
        **dict.fromkeys(range(60, 70), Tag.GC),
        **profiled(70),
        **dict.fromkeys(range(71, 81), Tag.RECOMPILED),
    }

    (found,) = captures(walls, tags)

    assert found.after_s == found.before_s


def test_every_cycle_is_a_capture_of_its_own() -> None:
    """Two stretches with steady steps between them."""
    walls = [50.0] * 20 + [400.0] + [50.0] * 20 + [400.0] + [70.0] * 20

    first, second = captures(walls, profiled(20, 41))

    assert (first.slower, second.slower) == (False, True)


def test_too_few_neighbours_say_nothing() -> None:
    """A capture at the very end has no after."""
    (found,) = captures([50.0] * 20 + [400.0] + [50.0] * 2, profiled(20))

    assert (found.before_s, found.after_s, found.slower) == (None, None, False)
