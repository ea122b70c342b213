"""Confidence interval of a ratio between two runs: moving-block bootstrap, and repeats.

Neighbouring steps are alike (a busy machine is busy for a while), so whole stretches of steps are
resampled, long enough to hold most of what neighbours have in common.  No resampling of one run
shows what changes from run to run.  Repeats do, best of all in turns; see
`trainperf.core.stats.sequential`.  Without them an assumed figure stands in, or the drift inside
the runs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import mean, variance
from typing import Literal

import numpy as np

from trainperf.core.arrays import Column, Places
from trainperf.core.stats.quantiles import Z95
from trainperf.core.stats.student import student_quantile


Source = Literal["turns", "repeats", "drift", "assumed"]
"""Repeats in turns, repeats one after the other; of single runs a machine that was not the same all
along, or an assumed figure where that is more."""

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

RESOLUTION = 0.001
"""Half the width of the bins that quantiles are read from: no interval is narrower."""

_SEED = 20260
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

    @property
    def resolution(self) -> float:
        """Smallest relative change, either way, that can be told from noise."""
        return max(self.high / self.ratio, self.ratio / self.low) - 1


def block_length(values: Column) -> int:
    """Steps in a block: twice the time over which the signs around the median stay correlated.

    The median depends only on the side on which a step falls, so the autocorrelation of the signs
    counts.  At least the cube root of the number of steps.
    """
    n = len(values)
    signs = np.sign(values - np.median(values))
    signs = signs - signs.mean()
    scale = float(signs @ signs)
    lagged = (float(signs[:-lag] @ signs[lag:]) / scale for lag in range(1, n // 4) if scale)
    together = 1 + 2 * sum(takewhile(lambda correlation: correlation > _NO_CORRELATION, lagged))
    wanted = max(math.ceil(math.pow(n, 1 / 3)), math.ceil(2 * together))
    return max(1, min(wanted, n // SEGMENTS))


def period_length(values: Column) -> int:
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


def _period(values: Column) -> tuple[int, bool]:
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


def estimate(
    whole: float, drawn: Sequence[float], parts: Sequence[float], mixture: Sequence[float]
) -> Estimate | None:
    """Estimate from a statistic's value for the *whole* run and for choices of its steps.

    Args:
        whole: Of all steps.
        drawn: For `resamples`.
        parts: For `segments`.
        mixture: For `mixed`.

    Returns:
        `None` where a value is not above 0, or NaN: there is no ratio then.
    """
    if not all(value > 0 for value in (whole, *drawn, *parts, *mixture)):
        return None
    apart, anyway = (variance(map(math.log, values)) for values in (parts, mixture))
    return Estimate(
        log=math.log(whole),
        sampling=variance(map(math.log, drawn)),
        drift=max(0.0, apart - anyway),
        parts=tuple(map(math.log, parts)),
    )


def ratio_interval(
    before: Sequence[Estimate],
    after: Sequence[Estimate],
    *,
    assumed: float = ASSUMED_NOISE,
    disturbed: float = 0.0,
) -> RatioInterval:
    """The ratio of two runs, each given as its repeats, which did not take turns.

    Args:
        before: The denominator.
        after: The numerator.
        assumed: Noise from run to run where no repeats show it.
        disturbed: That which other users of the machine make likely, where they do not.
    """
    freedom = len(before) + len(after) - 2
    between, source = _between(before, after, assumed, disturbed)
    error = math.sqrt(sum(_variance(runs, between, freedom) for runs in (before, after)))
    quantile = student_quantile(freedom, 0.975) if freedom else Z95
    log_ratio = mean(run.log for run in after) - mean(run.log for run in before)
    return interval_around(log_ratio, quantile * error, noise=math.sqrt(between), source=source)


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


def _between(
    before: Sequence[Estimate], after: Sequence[Estimate], assumed: float, disturbed: float
) -> tuple[float, Source]:
    """Variance from run to run, and where it comes from."""
    repeated = [[run.log for run in runs] for runs in (before, after) if len(runs) > 1]
    if repeated:
        squares = sum((len(logs) - 1) * variance(logs) for logs in repeated)
        return squares / sum(len(logs) - 1 for logs in repeated), "repeats"
    # What happened to one of them may have happened to the other.
    drift = max(disturbed**2, *(DRIFTS**2 * run.drift for run in (*before, *after)))
    return (drift, "drift") if drift > assumed**2 else (assumed**2, "assumed")


def _variance(runs: Sequence[Estimate], between: float, freedom: int) -> float:
    """Of the mean over the repeats of a run."""
    sampled = mean(run.sampling for run in runs)
    if not freedom:
        return sampled + between
    return (max(sampled, between) + RESOLUTION**2) / len(runs)
