"""A slope that noise does not make, in constant memory."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainperf.core.stats.trend import STRETCHES, Trend


def trend(values: npt.ArrayLike) -> Trend:
    """Of values known after steps that count from 0."""
    kept = np.asarray(values, dtype=float)
    return Trend.of(np.arange(len(kept), dtype=float), kept)


def test_steady_growth_is_its_own_slope() -> None:
    """Three bytes a step, without doubt, however many steps."""
    for steps in (20, 500, 100_000):
        found = trend(7 + 3.0 * np.arange(steps))

        assert found.value() == 3.0
        assert found.interval() == (3.0, 3.0)


@pytest.mark.parametrize(
    ("slope", "seed", "steps", "trials", "least"),
    [(0.0, 5, 100, 200, 180), (0.1, 6, 200, 100, 85)],
    ids=["noise", "a tenth of the noise a step"],
)
def test_a_slope_under_noise_is_within_its_interval(
    slope: float, seed: int, steps: int, trials: int, least: int
) -> None:
    """In nearly all of many trials: it is one of 95 %; and growth is told from none."""
    rng = np.random.default_rng(seed)
    intervals = [
        trend(slope * np.arange(steps) + rng.normal(size=steps)).interval() for _ in range(trials)
    ]

    assert sum(low <= slope <= high for low, high in intervals) >= least
    assert not slope or min(low for low, _ in intervals) > 0


STEPS = np.arange(400)


@pytest.mark.parametrize(
    "values",
    [
        # What stays is the same; what is on top every tenth step is ever more.
        pytest.param(50.0 + np.where(STEPS % 10, 0, 10 * STEPS), id="held now and then"),
        pytest.param(np.minimum(STEPS, 200.0), id="a cache of the first half"),
        pytest.param(np.where(STEPS < 30, 0.0, 1e9), id="a jump, such as a copy of the weights"),
    ],
)
def test_what_does_not_go_on_has_no_slope(values: npt.NDArray[np.float64]) -> None:
    """Of the least value in each stretch, over the latter half."""
    assert trend(values).value() == 0.0


def keyed(values: npt.ArrayLike, keys: npt.ArrayLike) -> Trend:
    """As `trend`, with the keys that caches had got by each step."""
    kept = np.asarray(values, dtype=float)
    return Trend.of(np.arange(len(kept), dtype=float), kept, np.asarray(keys, dtype=float))


def distinct(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many of them there were up to each step."""
    first = np.zeros(len(lengths), dtype=np.int64)
    first[np.unique(lengths, return_index=True)[1]] = 1
    return np.cumsum(first)


@pytest.mark.parametrize("seed", range(20))
def test_a_cache_of_shapes_is_told_from_a_leak_beside_it(seed: int) -> None:
    """5 MB for each new length of a long-tailed text, and 20 kB a step or none, under noise."""
    rng = np.random.default_rng(seed)
    shapes = distinct(rng.lognormal(4.5, 0.7, 3000).astype(np.int64))
    cache = 5e6 * shapes + rng.normal(0, 1e6, 3000)

    flat, leaks = keyed(cache, shapes), keyed(cache + 2e4 * np.arange(3000), shapes)

    assert trend(cache).value() > 1e5  # without the keys it is one
    assert flat.interval()[0] <= 0
    assert leaks.value() == pytest.approx(2e4, rel=0.2)
    assert leaks.interval()[0] > 0


def test_a_run_in_which_every_step_is_a_new_shape_has_no_slope() -> None:
    """Nothing can be told apart."""
    assert keyed(np.arange(500), np.arange(500)).value() is None


LONG = np.arange(1200.0)


@pytest.mark.parametrize(
    ("values", "goes_on"),
    [
        pytest.param(1e9 * np.sqrt(LONG), False, id="square root"),
        pytest.param(1e9 * np.log1p(LONG), False, id="logarithm"),
        pytest.param(-1e9 * np.exp(-LONG / 1000), False, id="cache of unknown keys"),
        # The latter half is an epoch, and grows all along.
        pytest.param(np.tile(np.arange(100.0), 2), False, id="outputs gathered over an epoch"),
        # An allocator fills up for a quarter of the steps; what leaks, leaks from the start.
        pytest.param(2e4 * LONG + 1e6 * np.minimum(LONG, 300), True, id="leak after a warm-up"),
    ],
)
def test_growth_that_slows_down_may_be_none(
    values: npt.NDArray[np.float64], *, goes_on: bool
) -> None:
    """The slope is what it is; its interval holds 0."""
    slowing = trend(values)

    assert slowing.value() > 0
    assert (slowing.interval()[0] > 0) is goes_on


def test_a_slope_of_few_steps_is_not_told() -> None:
    """Eleven steps have five or six in their latter half."""
    assert trend(np.arange(10)).value() is None
    assert trend(np.arange(10)).interval() is None
    assert trend(np.arange(12)).value() == 1.0


def test_a_million_steps_take_no_more_memory_than_a_thousand() -> None:
    """Blocks of 4,096, folded one by one."""
    found: Trend | None = None
    for first in range(0, 1_000_000, 4096):
        steps = np.arange(first, min(first + 4096, 1_000_000), dtype=float)
        part = Trend.of(steps, 2 * steps)
        found = part if found is None else found.merge(part)

    assert len(found.points) <= STRETCHES
    assert found.n == 1_000_000
    assert found.value() == 2.0


@given(
    values=st.lists(st.integers(0, 1000), min_size=3, max_size=400),
    cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_merging_is_associative(values: list[int], cuts: tuple[float, float]) -> None:
    """And the same as having seen all steps at once."""
    one, two = sorted(1 + round(cut * (len(values) - 3)) for cut in cuts)
    steps = np.arange(len(values), dtype=float)
    kept = np.array(values, dtype=float)
    places = ((0, one), (one, two + 1), (two + 1, len(values)))
    a, b, c = (Trend.of(steps[at:to], kept[at:to]) for at, to in places)

    assert a.merge(b).merge(c) == a.merge(b.merge(c)) == Trend.of(steps, kept)


def test_over_ranks_the_one_that_grows_fastest_counts() -> None:
    """It is the first to run out."""
    flat, grows = trend(np.zeros(50)), trend(np.arange(50))

    assert Trend.across([flat, grows]).value() == pytest.approx(1.0)
