"""Noise of this machine: the gains that it can show, and how a gain is read in its runs."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist, mean

from recipes.gpt2.outcomes import StageOutcome
from trainperf.analysis.run.directory import Run
from trainperf.comparison.compared_run import read_run
from trainperf.core.formatting.units import share, times
from trainperf.core.readings import STEP_MEAN_S
from trainperf.core.stats.sequential import ASSUMED_FREEDOM, ASSUMED_SPREAD, Looks
from trainperf.core.stats.student import student_quantile


SHOWN = 1.10
"""A gain that the pairs planned must be able to show; else the machine is too noisy for them."""

_QUANTILE = NormalDist().inv_cdf(0.975)

_GAINS = tuple(1 + percent / 100 for percent in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50, 100))


def least_gain(outcome: StageOutcome, most: int) -> float | None:
    """The smallest gain that *most* pairs show, if they differ as those of *outcome* did.

    `None` where it measured none.
    """
    gain = outcome.speedup
    if gain is None or not outcome.runs:
        return None
    pairs, reach = len(outcome.runs), math.log(gain.high / gain.value)
    if pairs >= most:
        return math.exp(reach)
    looks = Looks(most=most)
    spread = reach / reach_in_spreads(pairs, looks)
    least = min(spread * reach_in_spreads(number, looks) for number in range(pairs + 1, most + 1))
    return next((each for each in _GAINS if math.log(each) > least), _GAINS[-1])


def reach_in_spreads(pairs: int, looks: Looks) -> float:
    """Half the interval's width relative to the standard deviation of a pair."""
    freedom = pairs - 1 if pairs > looks.assumed else ASSUMED_FREEDOM
    return student_quantile(freedom, 1 - looks.level(pairs) / 2) / math.sqrt(pairs)


def warning(outcome: StageOutcome, least: float, planned: int, allowed: tuple[int, float]) -> str:
    """What the noise means for the stages that follow, and what else can be done.

    Args:
        outcome: That of the first stage.
        least: The smallest gain that the pairs planned would show.
        planned: So many.
        allowed: Pairs from here on, and the gain that these show.
    """
    pairs, shown = allowed
    return (
        f"This machine is too noisy: runs of one script differ by {share(outcome.noise or 0.0)}, "
        f"so {planned} pairs show a gain from {times(least)} on only. From here there are up to "
        f"{pairs} pairs per stage, and only stages that are expected to bring {times(shown)} or "
        "more. For all stages: a quiet machine, or more time (--minutes)."
    )


def pair_spread(outcomes: Sequence[StageOutcome], out: Path) -> float:
    """Standard deviation of the log ratio of two runs in turns, as known before the next stage.

    From the stages so far, pooled; before the first of them what `prove` assumes of two processes,
    and what the mean step of the baseline scatters.

    Args:
        outcomes: Of all stages so far.
        out: Folder of the walkthrough.
    """
    noises = [each.noise for each in outcomes if each.noise is not None]
    if noises:
        return math.sqrt(2 * mean(noise**2 for noise in noises))
    begun = [Run.open(out / each.runs[0]) for each in outcomes if each.status == "baseline"]
    runs = [read_run(run) for run in begun]
    sampled = [run.estimates[STEP_MEAN_S].sampling for run in runs if STEP_MEAN_S in run.estimates]
    return math.sqrt(ASSUMED_SPREAD**2 + 2 * sum(sampled))


def as_measured(gain: float, spread: float, looks: Looks) -> tuple[float, float]:
    """Between which figures 95 % of measurements of a true *gain* lie.

    They are means of as many pairs as it takes to show one: of few where the gain is large, or the
    first ones are lucky.  Up to a spread of 5 % it is 90 % at least.

    Args:
        gain: Times faster.
        spread: Standard deviation of the log ratio of a pair.
        looks: The plan.
    """
    reaches = {pairs: _QUANTILE * spread / math.sqrt(pairs) for pairs in range(1, looks.most + 1)}
    enough = (
        reach
        for pairs, reach in reaches.items()
        if abs(math.log(gain)) + reach > reach_in_spreads(pairs, looks) * spread
    )
    factor = math.exp(next(enough, reaches[looks.most]))
    return gain / factor, gain * factor
