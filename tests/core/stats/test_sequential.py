"""Looks after every pair: their levels, their overall error by simulation, and when a pair ends."""

import math

import numpy as np
import pytest

from scripts.bench.prove_simulated import experiment, heavy, normal
from trainperf.core.stats.bootstrap import Estimate
from trainperf.core.stats.sequential import (
    Looks,
    TurnTimes,
    nominal_levels,
    pair_state,
    pairs_to_decide,
    sequential_interval,
)


TEN = Looks(most=10)


def log(value: float) -> Estimate:
    """A run of which nothing but its statistic matters."""
    return Estimate(log=math.log(value), sampling=0.0, drift=0.0)


def verdicts(truth: float, spread: float, number: int = 200) -> list[str]:
    """Of simulated comparisons with normal noise."""
    generator = np.random.default_rng(7)
    return [experiment(generator, normal(spread), truth, 10)[0] for _ in range(number)]


def test_levels_are_those_of_the_published_design() -> None:
    """Kim and DeMets 1987, rho = 1, five looks: bounds 2.58, 2.49, 2.41, 2.34, 2.28."""
    from scipy.special import ndtri

    bounds = [float(-ndtri(level / 2)) for level in nominal_levels(5)]

    assert bounds == pytest.approx([2.576, 2.49, 2.41, 2.34, 2.28], abs=0.01)


def test_a_single_look_spends_all_of_the_error() -> None:
    """One pair planned: an ordinary interval."""
    assert nominal_levels(1) == pytest.approx((0.05,), abs=1e-4)


def test_no_look_is_left_after_the_last_pair() -> None:
    """The plan is fixed before the first one."""
    with pytest.raises(ValueError, match="looks 1 to 10"):
        TEN.level(11)


@pytest.mark.parametrize("noise", [normal(0.01), normal(0.02), normal(0.05), heavy(0.02)])
def test_identical_runs_are_rarely_told_apart(noise: object) -> None:
    """At most 5 % over all looks, with three standard errors of 400 experiments."""
    generator = np.random.default_rng(11)

    outcomes = [experiment(generator, noise, 1.0, 10)[0] for _ in range(400)]  # type: ignore[arg-type]

    claims = sum(outcome in {"faster", "slower"} for outcome in outcomes)
    assert claims / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_three_percent_is_found_by_ten_pairs() -> None:
    """Where processes differ by 2 %: in nine of ten comparisons, and never the wrong way."""
    outcomes = verdicts(1.03, 0.02)

    assert outcomes.count("slower") / len(outcomes) >= 0.9
    assert "faster" not in outcomes


def test_thirty_percent_needs_one_pair() -> None:
    """Far beyond what processes are assumed to differ by."""
    interval = sequential_interval([log(1.0)], [log(1.3)], TEN)

    assert interval.low > 1


def test_ten_percent_is_not_believed_from_one_pair() -> None:
    """Two processes of one program might differ by as much; three pairs that agree decide."""
    one = sequential_interval([log(1.0)], [log(1.1)], TEN)
    three = sequential_interval([log(1.0)] * 3, [log(1.1), log(1.101), log(1.099)], TEN)

    assert one.low < 1 < one.high
    assert three.low > 1


def test_pairs_that_agree_by_chance_are_not_believed_to_the_last_digit() -> None:
    """Five equal ratios: the interval is that of a spread of one percent."""
    interval = sequential_interval([log(1.0)] * 5, [log(1.05)] * 5, TEN)

    assert math.log(interval.high / interval.ratio) > 0.01


def turns(ratio: float, scatter: float, number: int) -> TurnTimes:
    """Turns of 10 ms a step and of so many times that."""
    generator = np.random.default_rng(5)
    before, after = 0.01 * np.exp(generator.normal(0, scatter, (2, number)))
    return TurnTimes(before=before.tolist(), after=(ratio * after).tolist())


@pytest.mark.parametrize(
    ("ratio", "scatter", "number", "first", "state"),
    [
        (1.3, 0.01, 8, True, "clear"),  # a large change
        (1.3, 0.01, 16, True, "clear"),  # although it can show no more either
        (1.3, 0.01, 8, False, "unsettled"),  # of which another pair has to tell
        (1.3, 0.01, 7, True, "unsettled"),  # no look here
        (1.3, 0.2, 8, True, "unsettled"),  # too much scatter to say so
        (1.05, 0.01, 8, True, "unsettled"),  # processes may differ by as much
        (1.0, 0.01, 16, False, "exhausted"),  # as precise as one pair need be
        (1.0, 0.3, 16, False, "unsettled"),  # more turns still help more than another start
        (1.0, 0.001, 4, True, "unsettled"),
    ],
)
def test_a_pair_ends_when_more_of_its_turns_would_be_wasted(
    ratio: float, scatter: float, number: int, *, first: bool, state: str
) -> None:
    """For a change that is large already, or where only new processes can show more."""
    clocks = [turns(ratio, scatter, number)]

    assert pair_state(clocks, TEN, first=first, costs_s=(10.0, 10.0)) == state


def test_a_clock_that_is_still_uncertain_keeps_the_pair_going() -> None:
    """Steady steps are precise long before validation every twentieth is."""
    clocks = [turns(1.0, 0.001, 16), turns(1.0, 0.3, 16)]

    assert pair_state(clocks, TEN, first=True, costs_s=(10.0, 10.0)) == "unsettled"


def test_a_pair_is_longer_where_starting_another_takes_long() -> None:
    """A start of a minute and turns of ten seconds: as many turns more are cheaper."""
    clocks = [turns(1.0, 0.05, 16)]

    assert pair_state(clocks, TEN, first=False, costs_s=(60.0, 10.0)) == "unsettled"
    assert pair_state(clocks, TEN, first=False, costs_s=(1.0, 10.0)) == "exhausted"


def test_work_that_recurs_is_no_scatter() -> None:
    """A slow turn in two on one side, one in four on the other: 15 against 12.5, and no doubt."""
    times = TurnTimes(before=[1.0, 2.0] * 16, after=[1.0, 1.0, 1.0, 2.0] * 8)

    log_ratio, error = times.log_ratio()
    assert log_ratio == pytest.approx(math.log(1.25 / 1.5))
    assert error == pytest.approx(0.0, abs=1e-12)


def test_what_remains_is_foreseen_from_the_interval() -> None:
    """A clear change needs few pairs more; one far below the noise none that are planned."""
    assert pairs_to_decide((1.1, 1.35), 1, TEN, margin=0.02) in {3, 4}
    assert pairs_to_decide((1.03, 1.2), 5, TEN, margin=0.02) is None
