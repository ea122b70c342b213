"""Distributions: right quantiles, exact merging, honest intervals."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainperf.core.stats.quantiles import GROWTH, Distribution, InterquartileRange


VALUES = st.lists(st.floats(1e-7, 1e4), min_size=1, max_size=200)
WITH_ZEROS = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e3)), min_size=1, max_size=60)


def distribution(values: list[float]) -> Distribution:
    """The distribution of at least one value."""
    return Distribution.of(np.array(values))


def spread_of(values: list[float]) -> InterquartileRange:
    """Of at least one value."""
    return InterquartileRange.of(np.array(values))


def same(first: Distribution, second: Distribution) -> bool:
    """Whether both say the same, exactly for counts, to rounding for sums."""
    return (
        first.n == second.n
        and first.zeros == second.zeros
        and all(first.quantile(p) == second.quantile(p) for p in (0, 5, 25, 50, 75, 95, 100))
        and math.isclose(first.serial.products, second.serial.products, rel_tol=1e-9, abs_tol=1e-9)
    )


@given(values=VALUES, percentile=st.sampled_from([0, 10, 25, 50, 75, 90, 95, 99, 100]))
def test_any_quantile_is_within_a_fifth_of_a_per_cent_of_an_order_statistic(
    values: list[float], percentile: float
) -> None:
    """The promise of 0.2 % bins: a quantile lies that close to the value of its rank."""
    place = percentile / 100 * (len(values) - 1)
    exact = sorted(values)[math.floor(place)]

    assert distribution(values).quantile(percentile) == pytest.approx(exact, rel=GROWTH - 1)


@given(first=WITH_ZEROS, second=WITH_ZEROS, third=WITH_ZEROS)
def test_merging_is_associative_and_equals_one_pass(
    first: list[float], second: list[float], third: list[float]
) -> None:
    """Blocks may be cut anywhere, zeros included."""
    a, b, c = distribution(first), distribution(second), distribution(third)
    whole = distribution([*first, *second, *third])

    assert same(a.merge(b).merge(c), whole)
    assert same(a.merge(b.merge(c)), whole)


def test_measured_zeros_count_as_zeros() -> None:
    """A tail of zero is a measurement, alone or with others; without any there is none."""
    found = distribution([0.0, 0.0, 2.0, 0.0])

    assert (found.n, found.value(), found.quantile(100)) == (4, 0.0, pytest.approx(2, rel=0.002))
    assert distribution([0.0, 0.0]).value() == 0.0
    assert Distribution.of(np.array([])) is Distribution.of(np.array([math.nan, -1.0])) is None


def ar1(rng: np.random.Generator, steps: int, correlation: float) -> npt.NDArray[np.float64]:
    """Log-normal step times whose logarithms are an AR(1) process with median 50 ms."""
    noise = rng.normal(0.0, 0.05, steps)
    logs = np.empty(steps)
    logs[0] = noise[0] / math.sqrt(1 - correlation**2)
    for step in range(1, steps):
        logs[step] = correlation * logs[step - 1] + noise[step]
    return 0.050 * np.exp(logs)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_interval_covers_the_true_median_although_steps_depend_on_each_other(
    correlation: float,
) -> None:
    """At least 90 % of 300 intervals hold the planted median; without widening far fewer do."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(300):
        interval = distribution(ar1(rng, 400, correlation).tolist()).interval()
        covered += interval[0] <= 0.050 <= interval[1]

    assert covered >= 270


def test_the_interval_is_not_so_wide_that_it_says_nothing() -> None:
    """For independent steps it is about as wide as the textbook one: 2 · 1.96 · 1.25 σ / √n."""
    interval = distribution(ar1(np.random.default_rng(3), 10_000, 0.0).tolist()).interval()

    assert interval[1] / interval[0] - 1 == pytest.approx(2 * 1.96 * 1.2533 * 0.05 / 100, rel=0.8)


def test_ranks_that_ran_the_same_steps_do_not_narrow_the_interval() -> None:
    """Eight equal ranks are no more evidence than one; five values have no interval at all."""
    one = distribution(ar1(np.random.default_rng(1), 500, 0.3).tolist())
    pooled = Distribution.across([one] * 8)

    assert (pooled.n, pooled.interval()) == (4000, one.interval())
    assert distribution([0.1, 0.2, 0.3, 0.4, 0.5]).interval() is None


@settings(max_examples=30)
@given(first=VALUES, second=VALUES)
def test_a_spread_merges_like_its_distribution(first: list[float], second: list[float]) -> None:
    """The distance of the quartiles of both parts, not the sum of two."""
    merged = spread_of(first).merge(spread_of(second))
    whole = distribution([*first, *second])

    assert merged.value() == whole.quantile(75) - whole.quantile(25)
