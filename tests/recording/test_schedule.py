"""When something is due: a few steps or seconds, and never so often that it costs."""

import pytest

from trainperf.recording.schedule import CostLimit, FlushSchedule


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("every", "flushed", "early", "late"),
    [
        pytest.param(10, (0, 0), (9, SECOND), (10, SECOND), id="as points are apart"),
        pytest.param(1000, (0, SECOND), (499, SECOND), (500, 1), id="memory is bounded"),
        pytest.param(1000, (0, 1000), (49, SECOND), (50, 200_000), id="fifty where it is cheap"),
        pytest.param(50, (SECOND, 0), (1, 6 * SECOND - 1), (1, 6 * SECOND), id="after 5 s"),
        pytest.param(1, (0, SECOND), (5, 199 * SECOND), (5, 200 * SECOND), id="half a percent"),
        pytest.param(1, (0, 0), (0, 100 * SECOND), (1, 1), id="every step, and none without one"),
        pytest.param(-3, (0, 0), (0, 1), (1, 1), id="nothing is less than every step"),
    ],
)
def test_a_flush_is_due_by_steps_and_time_and_what_it_costs(
    every: int, flushed: tuple[int, int], early: tuple[int, int], late: tuple[int, int]
) -> None:
    """With so many steps waiting at such a time, after the last one ended and took so long."""
    schedule = FlushSchedule(every)
    schedule.done(*flushed)

    assert not schedule.due(*early)
    assert schedule.due(*late)


def test_an_interval_is_due_once_per_interval() -> None:
    """The first time at once, then no sooner than so long after."""
    interval = CostLimit(least_ns=10)

    assert [now for now in range(0, 45, 3) if interval.due(now)] == [0, 12, 24, 36]


def test_what_is_dear_is_done_so_rarely_that_it_takes_a_thousandth_of_the_time() -> None:
    """7 ms every 7 seconds; what costs nothing, as often as allowed."""
    dear, free = CostLimit(), CostLimit(least_ns=SECOND)
    dear.done(SECOND, 7_000_000)
    free.done(SECOND, 0)

    assert dear.next_ns == 8 * SECOND
    assert free.next_ns == 2 * SECOND


def test_what_was_interrupted_counts_as_a_few_times_the_least() -> None:
    """4 ms off the core do not keep a reading of 1 µs away for 4 s."""
    limit = CostLimit(interrupted=4)
    limit.done(0, 1000)
    limit.done(SECOND, 4_000_000)

    assert limit.next_ns == SECOND + 4_000_000
