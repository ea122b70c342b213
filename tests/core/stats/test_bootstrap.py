"""An interval holds what it promises, on steps that are like their neighbours."""

import math
from collections.abc import Iterable

import numpy as np
import pytest

from trainperf.core.arrays import Column, Places
from trainperf.core.stats.bootstrap import (
    ASSUMED_NOISE,
    DRIFTS,
    SEGMENTS,
    Estimate,
    block_length,
    estimate,
    mixed,
    ratio_interval,
    resamples,
    segments,
)


def correlated(n: int, correlation: float, seed: int) -> Column:
    """Log-normal steps of about a millisecond, each like the one before."""
    noise = np.random.default_rng(seed).normal(0.0, 0.05, n)
    steps = np.empty(n)
    steps[0] = noise[0]
    for place in range(1, n):
        steps[place] = correlation * steps[place - 1] + noise[place]
    return np.exp(steps) * 1e-3


def median_of(values: Column) -> Estimate:
    """The estimate of a run's median step."""
    n = len(values)

    def medians(chosen: Iterable[Places]) -> list[float]:
        return [float(np.median(values[places])) for places in chosen]

    return estimate(
        float(np.median(values)),
        medians(resamples(n, block_length(values), 200)),
        medians(segments(n)),
        medians(mixed(n)),
    )


def test_blocks_are_as_long_as_neighbours_are_alike() -> None:
    """Independent steps need the least that the number asks for, correlated ones more."""
    independent = block_length(correlated(1000, 0.0, 1))
    alike = block_length(correlated(1000, 0.9, 1))

    assert independent == 10
    assert 20 < alike <= 1000 // SEGMENTS


def test_blocks_are_stretches_of_the_steps() -> None:
    """Drawn whole and reproducibly, as many places as there are steps."""
    first, second = (list(resamples(100, 10, 3)) for _ in range(2))

    for chosen in first:
        assert len(chosen) == 100
        assert all(np.diff(chosen.reshape(10, 10), axis=1).ravel() == 1)
        assert chosen.min() >= 0
        assert chosen.max() <= 99
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert not (first[0] == first[1]).all()


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
def test_the_variance_is_that_of_medians_of_many_runs(correlation: float) -> None:
    """Seen in two hundred runs of the same process: right within a third, correlated or not."""
    runs = [correlated(500, correlation, seed) for seed in range(200)]
    truth = np.var([math.log(np.median(run)) for run in runs])
    said = float(np.mean([median_of(run).sampling for run in runs[:40]]))

    assert 0.67 * truth < said < 1.5 * truth


def test_drift_is_seen_between_the_parts_of_a_run() -> None:
    """A run that got slower half-way may differ from its repeat by as much."""
    steady = correlated(800, 0.0, 3)
    drifting = steady * np.where(np.arange(800) < 400, 1.0, 1.2)

    assert median_of(steady).drift < 0.015**2
    assert 0.07**2 < median_of(drifting).drift < 0.13**2


def test_steps_that_differ_anyway_are_no_drift() -> None:
    """Parts of sixty steps of different lengths differ too; that is not the machine."""
    lengths = np.random.default_rng(0).lognormal(0.0, 0.5, 480)
    parts = [math.log(np.median(part)) for part in np.array_split(lengths, SEGMENTS)]
    drifts = [median_of(np.random.default_rng(seed).permutation(lengths)) for seed in range(20)]

    assert np.var(parts) > 0.04**2
    assert np.median([found.drift for found in drifts]) < 0.04**2


@pytest.mark.parametrize(("block", "least", "most"), [(1, 0.3, 0.75), (None, 0.85, 1.0)])
def test_single_steps_must_not_be_resampled(block: int | None, least: float, most: float) -> None:
    """Of two equal processes in which steps are like their neighbours, blocks leave 95 % alone."""
    runs = [resampled_median(correlated(400, 0.9, seed), block) for seed in range(120)]
    held = [
        ratio_interval([before], [after], assumed=0.0)
        for before, after in zip(runs[::2], runs[1::2], strict=True)
    ]

    assert least <= np.mean([found.low <= 1 <= found.high for found in held]) <= most


def resampled_median(values: Column, block: int | None) -> Estimate:
    """A run's median, and what the resampling alone says of it."""
    drawn = [
        math.log(np.median(values[places]))
        for places in resamples(len(values), block or block_length(values), 100)
    ]
    return Estimate(log=math.log(np.median(values)), sampling=float(np.var(drawn)), drift=0.0)


def one(log: float, sampling: float = 0.0, drift: float = 0.0) -> Estimate:
    """A planted estimate."""
    return Estimate(log=log, sampling=sampling, drift=drift)


def test_a_change_of_every_step_is_found_between_single_runs() -> None:
    """20 % where 2 % are assumed."""
    ratio = ratio_interval(
        [median_of(correlated(400, 0.0, 1))], [median_of(correlated(400, 0.0, 2) * 1.2)]
    )

    assert ratio.low > 1.1


SINGLE = 1.96 * math.sqrt(2)
"""Two standard deviations of both runs on either side."""


@pytest.mark.parametrize(
    ("before", "after", "ratio", "noise", "reach"),
    [
        # A run whose parts differ by 4 %, and one that was lucky: it may have happened to either.
        ([one(0.0, drift=0.04**2)], [one(0.0)], 1.0, DRIFTS * 0.04, SINGLE * DRIFTS * 0.04),
        ([one(0.0)], [one(math.log(2))], 2.0, ASSUMED_NOISE, SINGLE * ASSUMED_NOISE),
        # With the quantile of Student's t for so few of them: 2.776 with four degrees of freedom.
        (
            [one(log) for log in (-0.01, 0.0, 0.01)],
            [one(log) for log in (0.09, 0.1, 0.11)],
            math.exp(0.1),
            0.01,
            2.776 * math.sqrt((0.01**2 + 0.001**2) * 2 / 3),
        ),
        # Repeats that agree by chance: what sampling alone leaves open is never less.
        (
            [one(0.0, 0.02**2)] * 3,
            [one(0.0, 0.02**2)] * 3,
            1.0,
            0.0,
            2.776 * math.sqrt((0.02**2 + 0.001**2) * 2 / 3),
        ),
        # One run against repeats has their noise: it is the same machine.
        (
            [one(0.0)],
            [one(log) for log in (-0.03, 0.0, 0.03)],
            1.0,
            0.03,
            4.303 * math.sqrt((0.03**2 + 0.001**2) * 4 / 3),
        ),
    ],
    ids=["drift", "assumed", "repeats", "repeats alike by chance", "one against repeats"],
)
def test_an_interval_reaches_as_far_as_its_noise(
    before: list[Estimate], after: list[Estimate], ratio: float, noise: float, reach: float
) -> None:
    """On either side."""
    found = ratio_interval(before, after)

    assert (found.ratio, found.noise) == pytest.approx((ratio, noise))
    assert math.log(found.high / ratio) == pytest.approx(reach, rel=1e-3)
    assert math.log(ratio / found.low) == pytest.approx(reach, rel=1e-3)
    assert (found.source == "assumed") is (noise == ASSUMED_NOISE)


@pytest.mark.parametrize(
    ("whole", "drawn"), [(0.0, [1.0, 1.0]), (1.0, [0.0, 1.0]), (1.0, [math.nan, 1.0])]
)
def test_what_is_not_above_zero_has_no_ratio(whole: float, drawn: list[float]) -> None:
    """And so no interval."""
    assert estimate(whole, drawn, [1.0, 1.0], [1.0, 1.0]) is None
