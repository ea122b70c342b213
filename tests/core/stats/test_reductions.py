"""Mergeable statistics: how steps and ranks are put together."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainperf.core.stats.reductions import (
    First,
    LargestLast,
    Last,
    Maximum,
    Rate,
    Ratio,
    Reduction,
    SharedRate,
    Total,
)


# Whole numbers: their float sums are exact, so associativity can be asserted exactly.
AMOUNT = st.integers(0, 10**9).map(float)
STEPS = st.integers(1, 1000)

KINDS = [
    st.builds(Ratio, AMOUNT, AMOUNT, STEPS),
    st.builds(Rate, AMOUNT, AMOUNT, STEPS),
    st.builds(SharedRate, AMOUNT, AMOUNT, STEPS),
    st.builds(Total, AMOUNT, STEPS),
    st.builds(Maximum, AMOUNT, STEPS),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind).split("(")[1][:12])
@given(data=st.data())
def test_merging_is_associative(kind: st.SearchStrategy[Reduction], data: st.DataObject) -> None:
    """Blocks may be folded in any grouping."""
    a, b, c = (data.draw(kind) for _ in range(3))

    assert a.merge(b).merge(c) == a.merge(b.merge(c))


@given(order=st.permutations([3.0, 1.0, 2.0]))
def test_first_and_last_go_by_the_step_and_not_by_the_order_of_merging(
    order: Sequence[float],
) -> None:
    """A block that is read late does not become the first step."""
    firsts = [First(at, at * 10) for at in order]
    lasts = [Last(at, at * 10) for at in order]

    assert firsts[0].merge(firsts[1]).merge(firsts[2]).value() == 10.0
    assert lasts[0].merge(lasts[1]).merge(lasts[2]).value() == 30.0


def test_a_quotient_of_nothing_is_not_measured() -> None:
    """0/0 is `None`, never 0 and never NaN."""
    assert Ratio(0.0, 0.0).value() is None
    assert Rate(5.0, 0.0).value() is None


def test_over_ranks_amounts_add_up_and_the_time_is_the_slowest_ranks() -> None:
    """100 and 50 tokens in 2 s and 3 s are 50 tokens a second together."""
    assert Rate.across([Rate(100.0, 2.0), Rate(50.0, 3.0)]).value() == 50.0


def test_over_ranks_a_shared_step_is_counted_once() -> None:
    """Two ranks that make the same 10 steps make 10, at the slower one's pace."""
    assert SharedRate.across([SharedRate(10.0, 2.0), SharedRate(10.0, 5.0)]).value() == 2.0


def test_over_ranks_the_first_step_is_the_slowest_ranks() -> None:
    """All wait for it."""
    assert First.across([First(0.0, 1.5), First(0.0, 2.5)]).value() == 2.5


def test_over_ranks_the_last_value_is_the_mean() -> None:
    """Each rank has the loss of its own batch."""
    assert Last.across([Last(9.0, 2.0), Last(9.0, 4.0)]).value() == 3.0


def test_over_ranks_the_last_state_is_the_largest_ranks() -> None:
    """The rank with the most of its memory in holes is the one to look at."""
    later = LargestLast(2.0, 30.0).merge(LargestLast(1.0, 50.0))

    assert later.value() == 30.0
    assert LargestLast.across([LargestLast(2.0, 10.0), later]).value() == 30.0


def test_over_ranks_a_total_is_the_largest_ranks() -> None:
    """Ranks run side by side: two seconds of pauses on each of two ranks are two, not four."""
    assert Total.across([Total(2.0), Total(1.5)]).value() == 2.0
