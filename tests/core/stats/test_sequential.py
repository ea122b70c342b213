"""Looks after every pair: their levels, their overall error by simulation, and when a pair ends."""

import math
from dataclasses import replace
from statistics import mean, variance

import numpy as np
import pytest

from scripts.bench.prove_simulated import experiment, heavy, normal
from trainperf.core.stats.bootstrap import SEGMENTS, Estimate, RatioInterval, ratio_interval
from trainperf.core.stats.sequential import (
    Looks,
    TurnTimes,
    nominal_levels,
    pair_state,
    sequential_interval,
)


TEN = Looks(most=10)


def log(value: float) -> Estimate:
    """A run of which nothing but its statistic matters."""
    return Estimate(log=math.log(value), sampling=0.0, drift=0.0)


def test_levels_are_those_of_the_published_design() -> None:
    """Kim and DeMets 1987, rho = 1, five looks: bounds 2.58, 2.49, 2.41, 2.34, 2.28."""
    from scipy.special import ndtri

    bounds = [float(-ndtri(level / 2)) for level in nominal_levels(5)]

    assert bounds == pytest.approx([2.576, 2.49, 2.41, 2.34, 2.28], abs=0.01)


def test_the_plan_is_fixed_before_the_first_pair() -> None:
    """One pair planned: an ordinary interval; no look is left after the last one."""
    assert nominal_levels(1) == pytest.approx((0.05,), abs=1e-4)
    with pytest.raises(ValueError, match="looks 1 to 10"):
        TEN.level(11)


@pytest.mark.parametrize("noise", [normal(0.02), normal(0.05), heavy(0.02)])
def test_identical_runs_are_rarely_told_apart(noise: object) -> None:
    """At most 5 % over all looks, with three standard errors of 400 experiments."""
    generator = np.random.default_rng(11)

    outcomes = [experiment(generator, noise, 1.0, 10)[0] for _ in range(400)]  # type: ignore[arg-type]

    claims = sum(outcome in {"faster", "slower"} for outcome in outcomes)
    assert claims / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_three_percent_is_found_by_ten_pairs() -> None:
    """Where processes differ by 2 %: in nine of ten comparisons, and never the wrong way."""
    generator = np.random.default_rng(7)
    outcomes = [experiment(generator, normal(0.02), 1.03, 10)[0] for _ in range(200)]

    assert outcomes.count("slower") / len(outcomes) >= 0.9
    assert "faster" not in outcomes


@pytest.mark.parametrize(
    ("ratios", "believed"),
    [
        ([1.3], True),  # far beyond what processes are assumed to differ by
        ([1.1], False),  # two processes of one program might differ by as much
        ([1.1, 1.101, 1.099], True),
    ],
)
def test_a_change_is_believed_from_as_few_pairs_as_show_it(
    ratios: list[float], *, believed: bool
) -> None:
    """One of 30 %, or three of 10 % that agree."""
    interval = sequential_interval([log(1.0)] * len(ratios), [log(each) for each in ratios], TEN)

    assert (interval.low > 1, interval.high > 1) == (believed, True)


def test_pairs_that_agree_by_chance_are_not_believed_to_the_last_digit() -> None:
    """Five equal ratios: the interval is that of a spread of one percent."""
    interval = sequential_interval([log(1.0)] * 5, [log(1.05)] * 5, TEN)

    assert math.log(interval.high / interval.ratio) > 0.01


def at_the_end(before: list[Estimate], after: list[Estimate]) -> RatioInterval:
    """Of whole runs in turns, looked at once."""
    return sequential_interval(before, after, Looks.at_the_end(len(before)))


def test_turns_cancel_what_changes_slowly() -> None:
    """The machine gets slower from pair to pair by 10 %, and a change of 5 % is found in six."""
    before = [log(1.1**place) for place in range(6)]
    after = [log(1.05 * 1.1**place) for place in range(6)]

    assert at_the_end(before, after).low > 1.03
    assert ratio_interval(before, after).low < 1


def test_two_runs_in_turns_say_next_to_nothing() -> None:
    """They follow each other, so nothing is assumed of their spread: Student's of one degree."""
    twice = at_the_end([log(1.0)] * 2, [log(1.05), log(1.09)])

    assert twice.low < 0.9
    assert twice.source == "turns"


def test_what_happened_to_one_pair_of_ten_hides_no_change() -> None:
    """Nine pairs say 30 %, in the tenth the machine was half as fast: Yuen's interval, by hand."""
    wobble = (0.02, -0.02, 0.0, 0.04, -0.04, 0.02, -0.02, 0.0, 0.02)
    found = at_the_end([log(1.0)] * 10, [log(1.3 * math.exp(off)) for off in wobble] + [log(4.0)])

    kept = sorted(wobble)[1:]
    winsorized = [kept[0], *kept, kept[-1]]
    error = math.sqrt((variance(winsorized) * 10 * 9 / (8 * 7) + 2 * 0.001**2) / 10)
    assert math.log(found.ratio) == pytest.approx(math.log(1.3) + mean(kept))
    # Student's 2.365 with seven degrees of freedom.
    assert math.log(found.high / found.ratio) == pytest.approx(2.365 * error, rel=1e-3)
    assert found.noise > 0.1
    # Nine are too few to know which one is unlike the others.
    assert at_the_end([log(1.0)] * 9, [log(1.03)] * 8 + [log(2.0)]).low < 1


@pytest.mark.parametrize(("wild", "differs"), [(1, False), (3, True)])
def test_the_middle_pair_says_how_sure_one_is(wild: int, *, differs: bool) -> None:
    """Parts of a run that differ from its neighbour's widen the interval, not those of one pair."""
    calm = [replace(log(1.03), sampling=1.0, parts=(0.0,) * SEGMENTS)] * 5
    uneven = tuple(0.5 * (-1) ** place for place in range(SEGMENTS))
    after = [*calm[wild:], *[replace(log(1.03), sampling=1.0, parts=uneven)] * wild]
    before = [replace(one, log=0.0) for one in calm]

    assert (at_the_end(before, after).low < 1) is differs


def test_what_no_number_of_pairs_removes_stays() -> None:
    """Of a hundred pairs of blocks in one process, half a percent is the least."""
    plan = Looks(most=128, every=8, instance=0.005, assumed=0)
    found = sequential_interval([log(1.0)] * 128, [log(1.1)] * 128, plan)

    assert math.log(found.high / found.ratio) > 2 * 0.005
    assert plan.level(3) == plan.level(8) < plan.level(9)


def turns(ratio: float, scatter: float, number: int) -> TurnTimes:
    """Turns of 10 ms a step and of so many times that."""
    generator = np.random.default_rng(5)
    before, after = 0.01 * np.exp(generator.normal(0, scatter, (2, number)))
    return TurnTimes(before=before.tolist(), after=(ratio * after).tolist())


@pytest.mark.parametrize(
    ("clocks", "first", "start_s", "state"),
    [
        ([(1.3, 0.01, 8)], True, 10.0, "clear"),  # a large change
        ([(1.3, 0.01, 16)], True, 10.0, "clear"),  # although it can show no more either
        ([(1.3, 0.01, 8)], False, 10.0, "unsettled"),  # of which another pair has to tell
        ([(1.3, 0.01, 7)], True, 10.0, "unsettled"),  # no look here
        ([(1.3, 0.2, 8)], True, 10.0, "unsettled"),  # too much scatter to say so
        ([(1.05, 0.01, 8)], True, 10.0, "unsettled"),  # processes may differ by as much
        ([(1.0, 0.01, 16)], False, 10.0, "exhausted"),  # as precise as one pair need be
        (
            [(1.0, 0.3, 16)],
            False,
            10.0,
            "unsettled",
        ),  # more turns still help more
        ([(1.0, 0.001, 4)], True, 10.0, "unsettled"),
        # Steady steps are precise long before validation every twentieth is.
        ([(1.0, 0.001, 16), (1.0, 0.3, 16)], True, 10.0, "unsettled"),
        # A start of a minute and turns of ten seconds: as many turns more are cheaper.
        ([(1.0, 0.05, 16)], False, 60.0, "unsettled"),
        ([(1.0, 0.05, 16)], False, 1.0, "exhausted"),
    ],
)
def test_a_pair_ends_when_more_of_its_turns_would_be_wasted(
    clocks: list[tuple[float, float, int]], *, first: bool, start_s: float, state: str
) -> None:
    """For a change that is large already, or where only new processes can show more."""
    times = [turns(*clock) for clock in clocks]

    assert pair_state(times, TEN, first=first, costs_s=(start_s, 10.0)) == state
