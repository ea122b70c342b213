"""An interval holds what it promises, on steps that are like their neighbours."""

import math

import numpy as np
import pytest

from trainperf.stats.bootstrap import (
    ASSUMED_NOISE,
    SEGMENTS,
    Estimate,
    Values,
    block_length,
    estimate,
    ratio_interval,
    resamples,
    segments,
)


def correlated(n: int, correlation: float, seed: int) -> Values:
    """Log-normal steps of about a millisecond, each like the one before."""
    noise = np.random.default_rng(seed).normal(0.0, 0.05, n)
    steps = np.empty(n)
    steps[0] = noise[0]
    for place in range(1, n):
        steps[place] = correlation * steps[place - 1] + noise[place]
    return np.exp(steps) * 1e-3


def median_of(values: Values) -> Estimate:
    """The estimate of a run's median step."""
    block = block_length(values)
    found = estimate(
        float(np.median(values)),
        [float(np.median(values[chosen])) for chosen in resamples(len(values), block, 200)],
        [float(np.median(values[part])) for part in segments(len(values))],
    )
    assert found is not None
    return found


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


def one(log: float, sampling: float = 0.0, drift: float = 0.0) -> Estimate:
    """A planted estimate."""
    return Estimate(log=log, sampling=sampling, drift=drift)


def test_without_repeats_noise_is_assumed() -> None:
    """Two standard deviations of both runs on either side."""
    found = ratio_interval([one(0.0)], [one(math.log(2))])

    reach = 1.96 * math.sqrt(2) * ASSUMED_NOISE
    assert found.noise is None
    assert found.ratio == pytest.approx(2)
    assert math.log(found.high / 2) == pytest.approx(reach, rel=1e-3)
    assert math.log(2 / found.low) == pytest.approx(reach, rel=1e-3)


def test_repeats_say_what_the_noise_is() -> None:
    """With the quantile of Student's t for so few of them: 2.776 with four degrees of freedom."""
    before = [one(log) for log in (-0.01, 0.0, 0.01)]
    after = [one(log) for log in (0.09, 0.1, 0.11)]
    found = ratio_interval(before, after)

    assert found.noise == pytest.approx(0.01)
    assert found.ratio == pytest.approx(math.exp(0.1))
    assert math.log(found.high / found.ratio) == pytest.approx(
        2.776 * math.sqrt((0.01**2 + 0.001**2) * 2 / 3), rel=1e-3
    )


def test_repeats_that_agree_by_chance_are_not_taken_for_certainty() -> None:
    """What sampling alone leaves open is never less."""
    found = ratio_interval([one(0.0, 0.02**2)] * 3, [one(0.0, 0.02**2)] * 3)

    assert found.high > 1.04


def test_one_run_against_repeats_uses_their_noise() -> None:
    """It is the same machine."""
    found = ratio_interval([one(0.0)], [one(log) for log in (-0.03, 0.0, 0.03)])

    assert found.noise == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("whole", "drawn"), [(0.0, [1.0, 1.0]), (1.0, [0.0, 1.0]), (1.0, [math.nan, 1.0])]
)
def test_what_is_not_above_zero_has_no_ratio(whole: float, drawn: list[float]) -> None:
    """And so no interval."""
    assert estimate(whole, drawn, [1.0, 1.0]) is None
