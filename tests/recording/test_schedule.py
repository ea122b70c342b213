"""When something is due: a few steps or seconds, and never so often that it costs."""

from trainperf.recording.schedule import CostLimit, FlushSchedule


SECOND = 1_000_000_000


def test_a_flush_is_due_every_so_many_steps() -> None:
    """As many as the points in the logger are apart."""
    schedule = FlushSchedule(10)
    schedule.done(0, 0)

    assert not schedule.due(9, SECOND)
    assert schedule.due(10, SECOND)


def test_five_hundred_steps_are_the_most_that_gather() -> None:
    """Memory is bounded, whatever a flush cost."""
    schedule = FlushSchedule(1000)
    schedule.done(0, SECOND)

    assert not schedule.due(499, SECOND)
    assert schedule.due(500, 1)


def test_fifty_steps_are_enough_where_a_flush_costs_little() -> None:
    """However rarely points are logged."""
    schedule = FlushSchedule(1000)
    schedule.done(0, 1000)

    assert not schedule.due(49, SECOND)
    assert schedule.due(50, 200_000)


def test_slow_steps_are_flushed_after_five_seconds() -> None:
    """A killed run has lost no more than that."""
    schedule = FlushSchedule(50)
    schedule.done(SECOND, 0)

    assert not schedule.due(1, 6 * SECOND - 1)
    assert schedule.due(1, 6 * SECOND)


def test_nothing_is_flushed_when_nothing_waits() -> None:
    """However long it has been."""
    schedule = FlushSchedule(50)
    schedule.done(0, 0)

    assert not schedule.due(0, 100 * SECOND)


def test_a_flush_that_cost_a_second_is_not_repeated_for_two_hundred() -> None:
    """Half a percent at most, as long as five hundred steps do not gather."""
    schedule = FlushSchedule(1)
    schedule.done(0, SECOND)

    assert not schedule.due(5, 199 * SECOND)
    assert schedule.due(5, 200 * SECOND)


def test_every_step_can_be_asked_for() -> None:
    """`log_every_n_steps=1`, and nothing smaller."""
    for every in (1, 0, -3):
        schedule = FlushSchedule(every)
        schedule.done(0, 0)
        assert schedule.due(1, 1)
        assert not schedule.due(0, 1)


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
