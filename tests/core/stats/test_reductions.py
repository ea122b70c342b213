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
    assert (Ratio(0.0, 0.0).value(), Rate(5.0, 0.0).value()) == (None, None)


LATER = LargestLast(2.0, 30.0).merge(LargestLast(1.0, 50.0))


@pytest.mark.parametrize(
    ("ranks", "together"),
    [
        # 100 and 50 tokens in 2 s and 3 s: amounts add up, and the time is the slowest rank's.
        ([Rate(100.0, 2.0), Rate(50.0, 3.0)], 50.0),
        # Two ranks that make the same 10 steps make 10, at the slower one's pace.
        ([SharedRate(10.0, 2.0), SharedRate(10.0, 5.0)], 2.0),
        # All wait for the slowest rank's first step.
        ([First(0.0, 1.5), First(0.0, 2.5)], 2.5),
        # Each rank has the loss of its own batch: the mean.
        ([Last(9.0, 2.0), Last(9.0, 4.0)], 3.0),
        # The rank with the most of its memory in holes is the one to look at, at its latest step.
        ([LargestLast(2.0, 10.0), LATER], 30.0),
        # Ranks run side by side: two seconds of pauses on each of two ranks are two, not four.
        ([Total(2.0), Total(1.5)], 2.0),
    ],
)
def test_ranks_are_put_together_as_they_ran(ranks: list[Reduction], together: float) -> None:
    """Side by side, over the same steps."""
    assert type(ranks[0]).across(ranks).value() == together
