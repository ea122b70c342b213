"""Repeated confidence intervals: pairs of runs judged after every pair, with one overall error.

A group-sequential design by alpha spending.  The error of 5 % is spent evenly over the pairs
planned (Lan and DeMets, Biometrika 70, 1983; the family `alpha * t**rho` of Kim and DeMets,
Biometrika 74, 1987, with rho = 1), which gives a large change a chance at the first looks, as
Pocock's boundary does.  Each look's nominal level follows from the joint normal distribution of
the looks (Armitage, McPherson and Rowe, JRSS A 132, 1969) and is used as the level of Student's
*t*, as Jennison and Turnbull propose for few observations (*Group Sequential Methods*, 2000).  All
intervals together contain the truth with 95 % (Jennison and Turnbull, JRSS B 51, 1989), so whoever
stops at any of them, for any reason, may believe that one.

One pair of processes cannot show how much processes of one program differ, and two hardly.  So the
interval of one or two stands on an assumed spread, and claims only what is far beyond it; from
three pairs on the spread is measured, with a floor.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, mean, median, variance
from typing import Literal

import numpy as np
import numpy.typing as npt

from trainperf.core.stats.bootstrap import RESOLUTION, Estimate, RatioInterval, interval_around
from trainperf.core.stats.student import student_quantile


ALPHA = 0.05
"""Share of sequences of looks in which at least one interval may miss the truth."""

ASSUMED_SPREAD = 0.03
"""Standard deviation of the log ratio of two processes of one program, assumed at first: three
times the percent by which instances differed while they lived (docs/research/compare.md)."""

ASSUMED_FREEDOM = 3
"""Degrees of freedom of that assumption: with ten pairs planned, one pair claims what is larger
than 7.5 times the spread."""

ASSUMED_PAIRS = 2
"""Up to so many it is assumed: one difference of two pairs says next to nothing."""

LEAST_SPREAD = 0.01
"""Pairs that agree better by chance are not believed to."""

TRIMMED = 0.1
"""Share of the pairs trimmed at either end: one of ten, so no single pair decides."""

_GRID = 1201
"""Points of the numerical integration: levels are exact to about 1e-5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """The plan of a sequential comparison: how often it is looked at, at most."""

    most: int
    """Pairs at most; fixed before the first one, because it decides every level."""
    every: int = 1
    """Pairs between two looks; one that comes sooner, at the end, is taken for the next."""
    instance: float = 0.0
    """Standard deviation of the log ratio that no number of pairs removes."""
    assumed: int = ASSUMED_PAIRS
    """Up to so many pairs the spread is assumed, or more where they show it."""

    def level(self, pairs: int) -> float:
        """Two-sided nominal level of the look after so many pairs.

        Raises:
            ValueError: More pairs than planned.
        """
        if not 1 <= pairs <= self.most:
            raise ValueError(f"pairs={pairs}: the plan has looks 1 to {self.most}")
        return nominal_levels(-(-self.most // self.every))[-(-pairs // self.every) - 1]

    @classmethod
    def at_the_end(cls, pairs: int) -> "Looks":
        """One look at pairs of runs that follow each other, which an assumption says little of."""
        return cls(most=pairs, every=pairs, assumed=0)


@cache
def nominal_levels(looks: int) -> tuple[float, ...]:
    """Two-sided level of each of so many evenly spaced looks that spend `ALPHA` evenly.

    With ten: 0.0050 at the first, 0.0061 at the second, 0.0187 at the last.
    """
    spend = ALPHA / looks
    reach = 8 * math.sqrt(looks)
    grid = np.linspace(-reach, reach, _GRID)
    width = float(grid[1] - grid[0])
    # Density of the sum of the first k pairs' standardised differences, where no look has stopped.
    density = _normal(grid)
    step = _normal(grid[:, None] - grid[None, :]) * width
    half = len(grid) // 2
    edges = (grid[:half] + grid[1 : half + 1]) / 2
    levels: list[float] = []
    for number in range(1, looks + 1):
        if number > 1:
            density = step @ density
        # The bound beyond which so much of the mass lies, half of it on either side.
        bound = -float(np.interp(spend / 2, np.cumsum(density[:half] * width), edges))
        levels.append(2 * NormalDist().cdf(-bound / math.sqrt(number)))
        # By the share of each cell of the grid that lies within it.
        density = density * np.clip((bound - np.abs(grid)) / width + 0.5, 0.0, 1.0)
    return tuple(levels)


def sequential_interval(
    before: Sequence[Estimate], after: Sequence[Estimate], looks: Looks
) -> RatioInterval:
    """The ratio of two runs after some of the planned pairs, which took turns.

    What changes slowly, such as the temperature or other users of the machine, is the same for
    both of a pair and cancels.  So does what makes steps unlike each other where both ran the same
    steps: a long text is long in either run.  The quantile is Student's at the level of the look.

    Args:
        before: Repeats in the order of time, at least one.
        after: As many, each run in turns with the one at its place in *before*.
        looks: The plan.

    Raises:
        ValueError: More pairs than planned, or none.
    """
    pairs = list(zip(before, after, strict=True))
    level = looks.level(len(pairs))
    log_ratios = [second.log - first.log for first, second in pairs]
    sampled = median(_sampled(first, second) for first, second in pairs)
    middle, per_pair, freedom = _trimmed_mean(log_ratios)
    shown = len(pairs) > looks.assumed
    spread = max(per_pair, sampled, LEAST_SPREAD**2)
    if not shown:
        freedom, spread = ASSUMED_FREEDOM, max(per_pair, ASSUMED_SPREAD**2 + sampled)
    error = math.sqrt((spread + 2 * RESOLUTION**2) / len(pairs) + looks.instance**2)
    return interval_around(
        middle,
        student_quantile(freedom, 1 - level / 2) * error,
        # A difference of two runs scatters more than one of them.
        noise=math.sqrt((variance(log_ratios) if shown else spread) / 2),
        source="turns" if shown else "assumed",
    )


def _trimmed_mean(log_ratios: Sequence[float]) -> tuple[float, float, int]:
    """Trimmed mean, variance of one pair that belongs to it, and its degrees of freedom (Yuen).

    With a single pair its variance is 0, with no degree of freedom.
    """
    number, cut = len(log_ratios), int(TRIMMED * len(log_ratios))
    if number == 1:
        return log_ratios[0], 0.0, 0
    remaining = sorted(log_ratios)[cut : number - cut]
    left = len(remaining)
    winsorized = [remaining[0]] * cut + remaining + [remaining[-1]] * cut
    # The formula's error squared, times the number: comparable with the variance of one pair.
    per_pair = variance(winsorized) * number * (number - 1) / (left * (left - 1))
    return mean(remaining), per_pair, left - 1


def _sampled(first: Estimate, second: Estimate) -> float:
    """Variance of a pair's log ratio from which steps were recorded.

    Two estimates err upwards: differences of eighths where periodic work falls unevenly into them,
    and resampled whole periods of each run where both did the same uneven steps.
    """
    resampled = first.sampling + second.sampling
    if not first.parts or not second.parts:
        return resampled
    between = [later - earlier for earlier, later in zip(first.parts, second.parts, strict=True)]
    return min(variance(between) / len(between), resampled)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTimes:
    """Time per step in the turns of one pair of processes, by one clock; one value per turn."""

    before: Sequence[float]
    after: Sequence[float]

    @property
    def number(self) -> int:
        """Turns that both have had."""
        return min(len(self.before), len(self.after))

    def log_ratio(self) -> tuple[float, float]:
        """The log ratio of the mean times, and its standard error (infinite below eight turns).

        By batch means (Law and Kelton, *Simulation Modeling and Analysis*): of `BATCHES` stretches
        of turns that follow each other, as long as can be.  So validation in every second turn is
        in each of them, and is not taken for scatter.  What slows both sides of a stretch cancels.
        """
        number = self.number
        size = number // BATCHES
        turns = slice(number - size * BATCHES, number)
        first, second = np.asarray(self.before)[turns], np.asarray(self.after)[turns]
        if not size or min(first.min(), second.min()) <= 0:
            return 0.0, math.inf
        apart = (second / second.mean() - first / first.mean()).reshape(BATCHES, size).mean(axis=1)
        error = float(apart.std(ddof=1)) / math.sqrt(BATCHES)
        return math.log(float(second.mean() / first.mean())), error


BATCHES = 8
"""Stretches of turns whose means are compared."""

FIRST_LOOK = BATCHES
"""Turns of each side, warm-up apart, before the first look inside a pair; then 16, 32, 64, …"""

STABLE_TURNS = 16
"""Turns of each side below which their scatter is not believed."""


PairState = Literal["unsettled", "clear", "exhausted"]
"""Whether one pair of processes shows a change clearly, or can show no more than it has."""


def pair_state(
    clocks: Sequence[TurnTimes], looks: Looks, *, first: bool, costs_s: tuple[float, float]
) -> PairState:
    """Whether more turns of this pair of processes would be wasted.

    It is exhausted when a new pair would add more in the same time: by then its turns have taken
    `start · (error / spread)²`, where *spread* is the least by which processes differ.  That is the
    optimum of sampling in two stages (Cochran, *Sampling Techniques*, 1977, section 10.6).
    The first pair is clear when a clock shows a change larger than processes are assumed to
    differ.  Looks are at 8, 16, 32, … turns, and their errors sum to less than the first pair's.
    No verdict is made here: the interval is computed from what the pair recorded.

    Args:
        clocks: The turns so far, warm-up apart, by each clock that is judged.
        looks: The plan.
        first: Whether it is the first pair.
        costs_s: Seconds until the first turn, and in turns since.
    """
    number = min(times.number for times in clocks)
    if number < FIRST_LOOK or number & (number - 1):
        return "unsettled"
    estimates = [times.log_ratio() for times in clocks]
    if first and _shows_change(estimates, looks.level(1), number):
        return "clear"
    start_s, turns_s = costs_s
    scatter = max(error for _, error in estimates) / LEAST_SPREAD
    exhausted = number >= STABLE_TURNS and turns_s >= start_s * scatter**2
    return "exhausted" if exhausted else "unsettled"


def _shows_change(estimates: Sequence[tuple[float, float]], level: float, number: int) -> bool:
    """Of any clock, more than two processes are assumed to differ by."""
    between = student_quantile(ASSUMED_FREEDOM, 1 - level / 2) * ASSUMED_SPREAD
    # The level halves with every look, so that all of them together stay below the first pair's.
    share = level * FIRST_LOOK / (2 * number)
    quantile = student_quantile(BATCHES - 1, 1 - share / 2)
    return any(abs(log) > between + quantile * error for log, error in estimates)


def _normal(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.exp(-0.5 * values**2) / math.sqrt(2 * math.pi)
