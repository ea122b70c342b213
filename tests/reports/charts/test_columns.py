"""Groups of steps: nothing is lost that a chart must show."""

import numpy as np
import pytest

from trainperf.core.arrays import Column
from trainperf.reports.charts.columns import Groups


def observed(values: Column, *, most: int = 64, block: int = 100, first: int = 0) -> Groups:
    """Groups over steps from 0 that arrive a block at a time."""
    groups = Groups(first, most)
    index = np.arange(len(values), dtype=np.float64)
    for begin in range(0, len(values), block):
        part = slice(begin, begin + block)
        groups.observe(index[part], {"v": values[part]})
    return groups


@pytest.mark.parametrize("steps", [1, 63, 64, 65, 128, 129, 1000, 4097])
def test_groups_are_what_numpy_says_of_their_steps(steps: int) -> None:
    """Sum, count, extremes and their places, for any number of steps and blocks."""
    values = np.random.default_rng(steps).integers(0, 50, steps).astype(np.float64)
    values[::7] = np.nan

    groups = observed(values, block=100)
    span = groups.span("v")

    assert len(groups.steps()) <= 64
    for place, begin in enumerate(groups.begins().tolist()):
        mine = values[begin : begin + groups.width]
        known = mine[~np.isnan(mine)]
        assert groups.steps()[place] == len(mine)
        if span is None or not len(known):
            continue
        assert span.sum[place] == known.sum()
        assert span.weight[place] == len(known)
        assert span.low[place] == known.min()
        assert span.high[place] == known.max()
        assert span.high_at[place] == begin + int(np.nanargmax(mine))


def test_groups_stay_where_they_are_as_a_run_grows() -> None:
    """A chart that is drawn anew must not seem to move."""
    short, long = observed(np.ones(1000)), observed(np.ones(1001))

    assert short.width == long.width == 16
    assert long.begins()[: len(short.begins())].tolist() == short.begins().tolist()


def test_a_column_that_begins_late_is_missing_before() -> None:
    """A fact that only a later attempt has."""
    groups = Groups(most=8)
    groups.observe(np.arange(4.0), {"old": np.ones(4)})
    groups.observe(np.arange(4.0, 8.0), {"old": np.ones(4), "new": np.full(4, 2.0)})

    span = groups.span("new")

    assert span.weight.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert np.isnan(span.mean()[:4]).all()


def test_a_column_without_any_value_is_none() -> None:
    """Not a line of zeros."""
    assert observed(np.full(10, np.nan)).span("v") is None
    assert observed(np.ones(10)).span("other") is None


def test_groups_without_a_step_are_left_out() -> None:
    """An attempt that was cut off leaves a hole in the numbers."""
    groups = Groups(most=64)
    groups.observe(np.array([0.0, 1.0, 40.0]), {"v": np.array([1.0, 2.0, 3.0])})

    assert groups.begins().tolist() == [0, 1, 40]
    assert groups.steps().tolist() == [1, 1, 1]
