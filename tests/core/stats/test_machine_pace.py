"""What a ratio may be once the machine is taken out of it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainperf.core.stats.bootstrap import RatioInterval, Slowdown, including, slowdown


def found(ratio: float, by: float = 1.1) -> RatioInterval:
    """An interval that reaches as far up as down."""
    return RatioInterval(ratio=ratio, low=ratio / by, high=ratio * by, noise=0.02, source="assumed")


def test_a_machine_that_kept_its_speed_during_each_run_is_known_exactly() -> None:
    """Half again as long beside the second."""
    machine = slowdown([0.2, 0.2], [0.3, 0.3])

    assert machine is not None
    assert machine.ratio == pytest.approx(1.5)
    assert machine.variance == 0


def test_what_remains_without_the_machine_is_in_the_interval() -> None:
    """Steps and work half again as long: from no change at all to what it looks like."""
    said = including(found(1.5), Slowdown(log=math.log(1.5), variance=0.0))

    assert said.ratio == 1.5
    assert (said.low, said.high) == pytest.approx((1 / 1.1, 1.5 * 1.1))


def test_a_slow_machine_makes_rates_smaller() -> None:
    """Two thirds of the tokens on a machine of two thirds of the speed."""
    machine = Slowdown(log=math.log(1.5), variance=0.0)
    said = including(found(1 / 1.5), machine, lower_is_faster=False)

    assert (said.low, said.high) == pytest.approx((1 / 1.5 / 1.1, 1.1))


def test_a_machine_that_changed_during_a_run_is_believed_less() -> None:
    """Twice as slow at the end as at the beginning: anything in between, by two timings."""
    machine = slowdown([1.0, 1.0], [1.0, 2.0])

    assert machine is not None
    assert machine.log == pytest.approx(math.log(2) / 2)
    assert machine.variance == pytest.approx((math.log(2) / 2) ** 2)
    assert including(found(1.0), machine).low < 1 / math.sqrt(2) / 1.9


@pytest.mark.parametrize(
    ("before", "after"), [([], []), ([1.0, 1.0], []), ([1.0], [1.0, 1.0]), ([], [1.0, 1.0])]
)
def test_a_machine_that_was_not_timed_twice_is_not_known(
    before: list[float], after: list[float]
) -> None:
    """A killed run has no end, and an older one neither."""
    assert slowdown(before, after) is None


@given(
    ratio=st.floats(0.1, 10),
    by=st.floats(1.001, 3),
    log=st.floats(-2, 2),
    variance=st.floats(0, 1),
    lower_is_faster=st.booleans(),
)
def test_an_interval_never_gets_narrower(
    ratio: float, by: float, log: float, variance: float, *, lower_is_faster: bool
) -> None:
    """Whatever became of the machine."""
    before = found(ratio, by)
    said = including(before, Slowdown(log=log, variance=variance), lower_is_faster=lower_is_faster)

    assert said.low <= before.low
    assert said.high >= before.high
    assert said.ratio == before.ratio
