"""Confidence interval of a ratio between two runs: moving-block bootstrap, and repeats.

Neighbouring steps are alike (a busy machine is busy for a while), so whole stretches of steps are
resampled, long enough to hold most of what neighbours have in common.  No resampling of one run
shows what changes from run to run.  Repeats do, best of all in turns.  Without them an assumed
figure or the drift inside the runs stands in, and `trainperf.core.stats.pace` takes out what the
machine's own speed explains.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, mean, median, variance
from typing import Literal

import numpy as np
import numpy.typing as npt

from trainperf.core.stats.student import student_quantile


Values = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Source = Literal["turns", "repeats", "pace", "drift", "assumed"]
"""Repeats in turns, repeats one after the other; of single runs an assumed figure, beyond what the
machine's pace explains, or beyond nothing; or drift inside the runs, where that is more."""

SEGMENTS = 8
"""Parts of a run that are compared with each other to measure drift."""

LEAST_STEPS = 4 * SEGMENTS
"""Fewer steps give no interval."""

RESAMPLES = 400
"""Enough to know a standard deviation to 4 %."""

SLOW = 1.5
"""Times the median from which a step, with the gaps after it, is a slow one that may recur."""

LEAST_PERIODS = 4
"""Fewer of them in a run show no period."""

MOSTLY = 0.8
"""Share of the intervals between slow steps that are equal, where they recur evenly."""

DRIFTS = 2.5
"""Noise from run to run as a multiple of the drift between parts of a run: a machine that is busy
for a second shows inside a run, one that is busy for a minute only between runs."""

ASSUMED_NOISE = 0.02
"""Relative standard deviation from run to run without repeats: that of a quiet machine with a
boosting clock, not of a shared one."""

TRIMMED = 0.1
"""Share of the pairs trimmed at either end: one of ten, so no single pair decides."""

RESOLUTION = 0.001
"""Half the width of the bins that quantiles are read from: no interval is narrower."""

_SEED = 20260
Z95 = NormalDist().inv_cdf(0.975)
_NO_CORRELATION = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The logarithm of a statistic of one run, and its variance."""

    log: float
    sampling: float
    """Variance from which steps happened to be recorded."""
    drift: float
    """Variance between parts of the run, beyond that of as many steps from anywhere in it."""
    parts: tuple[float, ...] = ()
    """The logarithm of the statistic in each part, in order; empty where unknown."""

    def with_drift(self, drift: float) -> "Estimate":
        """The same with another variance between parts."""
        return replace(self, drift=drift)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """The second statistic relative to the first, with the 95 % interval."""

    ratio: float
    low: float
    high: float
    noise: float
    """Relative standard deviation from run to run that it assumes."""
    source: Source
    """Where the noise was measured."""

    def inverse(self) -> "RatioInterval":
        """The first statistic relative to the second."""
        return replace(self, ratio=1 / self.ratio, low=1 / self.high, high=1 / self.low)

    @property
    def resolution(self) -> float:
        """Smallest relative change, either way, that can be told from noise."""
        return max(self.high / self.ratio, self.ratio / self.low) - 1


def block_length(values: Values) -> int:
    """Steps in a block: twice the time over which the signs around the median stay correlated.

    The median depends only on the side on which a step falls, so the autocorrelation of the signs
    counts.  At least the cube root of the number of steps.
    """
    n = len(values)
    signs = np.sign(values - np.median(values))
    signs = signs - signs.mean()
    scale = float(signs @ signs)
    together, lag = 1.0, 1
    while scale and lag < n // 4:
        correlation = float(signs[:-lag] @ signs[lag:]) / scale
        if correlation <= _NO_CORRELATION:
            break
        together += 2 * correlation
        lag += 1
    wanted = max(math.ceil(math.pow(n, 1 / 3)), math.ceil(2 * together))
    return max(1, min(wanted, n // SEGMENTS))


def period_length(values: Values) -> int:
    """Steps in a block for a mean: whole periods of the slow values, where these recur evenly.

    A block of whole periods has as many slow steps wherever it begins, so that their number is not
    taken for chance; of uneven ones it is as long as two of the intervals between them.
    """
    n = len(values)
    least = block_length(values)
    period, even = _period(values)
    if not period:
        return least
    wanted = -(-least // period) * period if even else max(least, 2 * period)
    return max(1, min(wanted, n // LEAST_PERIODS))


def recurs(values: Values) -> bool:
    """Whether the slow values, above `SLOW` medians, recur evenly: part of the work, no chance."""
    return _period(values)[1]


def _period(values: Values) -> tuple[int, bool]:
    """Usual distance between slow values, and whether most are as far apart; 0 of too few."""
    slow = np.flatnonzero(values > SLOW * np.median(values))
    if len(slow) < LEAST_PERIODS + 1:
        return 0, False
    between = np.diff(slow)
    period = max(1, round(float(np.median(between))))
    # A processor that is shared in slices of some milliseconds makes every second or third slow.
    return period, float(np.mean(np.abs(between - period) <= period // 8)) >= MOSTLY


def resamples(n: int, block: int, number: int) -> Iterator[Places]:
    """Indices of *n* steps drawn as moving blocks; deterministic."""
    generator = np.random.default_rng(_SEED)
    within = np.arange(block)
    for _ in range(number):
        starts = generator.integers(0, n - block + 1, size=-(-n // block))
        yield (starts[:, None] + within).ravel()[:n]


def segments(n: int) -> list[Places]:
    """Indices of *n* steps in `SEGMENTS` consecutive parts."""
    return np.array_split(np.arange(n), SEGMENTS)


def mixed(n: int) -> list[Places]:
    """As many parts, their steps drawn from everywhere: their differences are not drift."""
    return np.array_split(np.random.default_rng(_SEED).permutation(n), SEGMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampled:
    """Values of a statistic for choices of a run's steps; NaN or ≤ 0 where it has none."""

    drawn: Sequence[float]
    """For `resamples`."""
    segments: Sequence[float]
    mixed: Sequence[float]


def estimate(whole: float, resampled: Resampled) -> Estimate | None:
    """Estimate from a statistic's value for the *whole* run and for choices of its steps.

    `None` where a value is not above 0: there is no ratio then.
    """
    if not all(
        value > 0 for value in (whole, *resampled.drawn, *resampled.segments, *resampled.mixed)
    ):
        return None
    return Estimate(
        log=math.log(whole),
        sampling=variance(map(math.log, resampled.drawn)),
        drift=_beyond(resampled.segments, resampled.mixed),
        parts=tuple(map(math.log, resampled.segments)),
    )


def ratio_interval(
    before: Sequence[Estimate], after: Sequence[Estimate], *, assumed: float = ASSUMED_NOISE
) -> RatioInterval:
    """The ratio of two runs, each given as its repeats, which did not take turns.

    Args:
        before: The denominator.
        after: The numerator.
        assumed: Noise from run to run where no repeats show it.
    """
    freedom = len(before) + len(after) - 2
    between, source = _between(before, after, assumed)
    error = math.sqrt(sum(_variance(runs, between, freedom) for runs in (before, after)))
    quantile = student_quantile(freedom, 0.975) if freedom else Z95
    log_ratio = mean(run.log for run in after) - mean(run.log for run in before)
    return interval_around(log_ratio, quantile * error, noise=math.sqrt(between), source=source)


def paired_interval(before: Sequence[Estimate], after: Sequence[Estimate]) -> RatioInterval:
    """The ratio of two runs whose repeats took turns: each is compared with its neighbour.

    What changes slowly, such as the temperature or other users of the machine, is the same for
    both of a pair and cancels.  So does what makes steps unlike each other where both ran the same
    steps: a long text is long in either run.

    Of ten pairs or more it is the trimmed mean of their log ratios, with the interval of Yuen
    (Biometrika 61, 1974): of *n* ratios, *g* are trimmed at either end and *h = n - 2g* remain.
    The standard error is `sqrt((n - 1) · s² / (h · (h - 1)))`, where *s* is the standard deviation
    of the winsorized ratios, each trimmed one replaced by the nearest that remains; the quantile
    is Student's with *h - 1* degrees of freedom.

    Args:
        before: Repeats in the order of time, at least two.
        after: As many, each next to the one at its place in *before*.
    """
    pairs = list(zip(before, after, strict=True))
    log_ratios = [second.log - first.log for first, second in pairs]
    sampled = median(sampled_apart(first, second) for first, second in pairs)
    middle, per_pair, freedom = trimmed_mean(log_ratios)
    error = math.sqrt((max(per_pair, sampled) + 2 * RESOLUTION**2) / len(pairs))
    return interval_around(
        middle,
        student_quantile(freedom, 0.975) * error,
        # A difference of two runs scatters more than one of them.
        noise=math.sqrt(variance(log_ratios) / 2),
        source="turns",
    )


def trimmed_mean(log_ratios: Sequence[float]) -> tuple[float, float, int]:
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


def interval_around(
    log_ratio: float, reach: float, *, noise: float, source: Source
) -> RatioInterval:
    """The interval of half-width *reach* around a log ratio."""
    return RatioInterval(
        ratio=math.exp(log_ratio),
        low=math.exp(log_ratio - reach),
        high=math.exp(log_ratio + reach),
        noise=noise,
        source=source,
    )


def sampled_apart(first: Estimate, second: Estimate) -> float:
    """Variance of the difference of two runs, from the differences of their parts in order."""
    if not first.parts or not second.parts:
        return first.sampling + second.sampling
    between = [later - earlier for earlier, later in zip(first.parts, second.parts, strict=True)]
    return variance(between) / len(between)


def _between(
    before: Sequence[Estimate], after: Sequence[Estimate], assumed: float
) -> tuple[float, Source]:
    """Variance from run to run, and where it comes from."""
    if len(before) + len(after) > 2:
        return _pooled(before, after), "repeats"
    # What happened to one of them may have happened to the other.
    drift = DRIFTS**2 * max(run.drift for run in (*before, *after))
    return (drift, "drift") if drift > assumed**2 else (assumed**2, "assumed")


def _variance(runs: Sequence[Estimate], between: float, freedom: int) -> float:
    """Of the mean over the repeats of a run."""
    sampled = mean(run.sampling for run in runs)
    if not freedom:
        return sampled + between
    return (max(sampled, between) + RESOLUTION**2) / len(runs)


def _beyond(parts: Sequence[float], mixture: Sequence[float]) -> float:
    """Variance of the parts' logarithms beyond that of a mixture."""
    apart, anyway = (variance(map(math.log, values)) for values in (parts, mixture))
    return max(0.0, apart - anyway)


def _pooled(*groups: Sequence[Estimate]) -> float:
    """Variance between repeats, of all groups together."""
    repeated = [[run.log for run in runs] for runs in groups if len(runs) > 1]
    squares = sum((len(logs) - 1) * variance(logs) for logs in repeated)
    return squares / sum(len(logs) - 1 for logs in repeated)
