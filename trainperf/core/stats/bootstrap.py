"""How sure is a ratio between two runs?  By resampling blocks of steps, and by repeats.

Neighbouring steps are alike (a busy machine is busy for a while), so single steps must not be
resampled: whole stretches are, long enough to hold most of what neighbours have in common.  What
changes from run to run no resampling of one run can show.  Repeats do, best of all when they take
turns.  Where they did not, three things stand in for it: an assumed figure, the drift inside the
runs, and the fastest steps, which a busy machine slows least: they must say the same.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, mean, median, variance
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit


Values = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Source = Literal["turns", "repeats", "drift", "assumed"]
"""Repeats that took turns, repeats that did not, parts of the runs, or nobody measured it."""

SEGMENTS = 8
"""Parts of a run that are compared with each other, to see it drift."""

LEAST_STEPS = 4 * SEGMENTS
"""Fewer steps give no interval."""

MOST_PIECES = 500
"""Pieces among which the fastest are looked for: single steps in a run of so many."""

FASTEST = 0.05
"""Share of the pieces that are faster than what is called the fastest."""

DRIFTS = 2.5
"""From run to run may be so many times what parts of a run differ by: what is busy for a second
is seen inside a run, what is busy for a minute only between runs."""

ASSUMED_NOISE = 0.02
"""Relative standard deviation from run to run, where no repeats show it: that of a quiet machine
with a boosting clock, not of a shared one."""

TRIMMED = 0.1
"""Share of the pairs left out at either end, of ten pairs one: what hit one of them says nothing of
the others."""

RESOLUTION = 0.001
"""Quantiles are read from bins that are twice as wide: no interval is narrower than that."""

_SEED = 20260
_Z95 = NormalDist().inv_cdf(0.975)
_NO_CORRELATION = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The logarithm of a statistic of one run, and how far off it may be."""

    log: float
    sampling: float
    """Variance from which steps happened to be recorded."""
    drift: float
    """Variance between parts of the run, beyond that of as many steps from anywhere in it."""
    parts: tuple[float, ...] = ()
    """The logarithm of the statistic in each of those parts, in order; empty where unknown."""
    fastest: "Estimate | None" = None
    """The same of its fastest steps, which a busy machine slows least; `None` where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """How many times the first statistic the second is, with the 95 % interval."""

    ratio: float
    low: float
    high: float
    noise: float
    """Relative standard deviation from run to run that it reckons with."""
    source: Source
    """Where that comes from."""
    fastest: float | None = None
    """The ratio of the fastest steps, which the interval includes; `None` in repeats by turns."""

    @property
    def resolution(self) -> float:
        """Relative change, either way, below which nothing is told from noise."""
        return max(self.high / self.ratio, self.ratio / self.low) - 1


def block_length(values: Values) -> int:
    """Steps in a block, from how long one step's being above the median says so of the next.

    Only the side of the median on which a step falls moves it, so the autocorrelation of the
    signs counts: twice the time it takes to fade, at least the cube root of the number.
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


def resamples(n: int, block: int, number: int) -> Iterator[Places]:
    """Places of *n* steps drawn as moving blocks; the same ones for the same arguments."""
    generator = np.random.default_rng(_SEED)
    within = np.arange(block)
    for _ in range(number):
        starts = generator.integers(0, n - block + 1, size=-(-n // block))
        yield (starts[:, None] + within).ravel()[:n]


def segments(n: int) -> list[Places]:
    """Places of *n* steps in `SEGMENTS` parts that follow each other."""
    return np.array_split(np.arange(n), SEGMENTS)


def mixed(n: int) -> list[Places]:
    """As many parts, their steps drawn from everywhere: what these differ by is not drift."""
    return np.array_split(np.random.default_rng(_SEED).permutation(n), SEGMENTS)


def pieces(n: int) -> list[Places]:
    """Places of *n* steps in pieces as short as possible: among them the fastest are found."""
    return np.array_split(np.arange(n), min(n, MOST_PIECES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampled:
    """Values of a statistic for choices of a run's steps; not above 0, or NaN: it has none."""

    drawn: Sequence[float]
    """For `resamples`."""
    segments: Sequence[float]
    mixed: Sequence[float]
    pieces: Sequence[float] = ()
    """Empty where it is nothing that gets faster."""


def estimate(whole: float, seen: Resampled, *, lower_is_faster: bool = True) -> Estimate | None:
    """From a statistic's value for a run, and what it is for choices of the run's steps.

    `None` where it is not above 0 throughout: there is no ratio then.
    """
    if not all(value > 0 for value in (whole, *seen.drawn, *seen.segments, *seen.mixed)):
        return None
    return Estimate(
        log=math.log(whole),
        sampling=variance(map(math.log, seen.drawn)),
        drift=_beyond(seen.segments, seen.mixed),
        parts=tuple(map(math.log, seen.segments)),
        fastest=_fastest(seen.pieces, FASTEST if lower_is_faster else 1 - FASTEST),
    )


def ratio_interval(
    before: Sequence[Estimate], after: Sequence[Estimate], *, assumed: float = ASSUMED_NOISE
) -> RatioInterval:
    """The ratio of two runs, each given as its repeats, which did not take turns.

    It includes what is said of their fastest steps: where only the others differ, it may be the
    machine that was busy.

    Args:
        before: What is divided by.
        after: What is divided.
        assumed: Noise from run to run where there are no repeats to show it.
    """
    found = _interval(before, after, assumed)
    first, second = ([one.fastest for one in runs if one.fastest] for runs in (before, after))
    if (len(first), len(second)) != (len(before), len(after)):
        return found
    fastest = _interval(first, second, assumed)
    # What slowed the others more has slowed these too, nobody knows how much.
    doubt = _Z95 * abs(math.log(found.ratio / fastest.ratio))
    down = math.hypot(math.log(fastest.ratio / fastest.low), doubt)
    up = math.hypot(math.log(fastest.high / fastest.ratio), doubt)
    return replace(
        found,
        low=min(found.low, fastest.ratio * math.exp(-down)),
        high=max(found.high, fastest.ratio * math.exp(up)),
        fastest=fastest.ratio,
    )


def paired_interval(before: Sequence[Estimate], after: Sequence[Estimate]) -> RatioInterval:
    """The ratio of two runs whose repeats took turns: each is compared with its neighbour.

    What changes slowly, such as the temperature or who else uses the machine, is the same for
    both of a pair and cancels.  So does what makes steps unlike each other, where both did the
    same ones: a long text is long in either run.  Of ten pairs or more it is a trimmed mean, with
    the interval of Yuen (Biometrika 61, 1974).

    Args:
        before: Repeats in the order of time, at least two.
        after: As many, each next to the one at its place in *before*.
    """
    pairs = list(zip(before, after, strict=True))
    apart = [two.log - one.log for one, two in pairs]
    sampled = median(_sampled_apart(one, two) for one, two in pairs)
    trim = int(TRIMMED * len(apart))
    kept = sorted(apart)[trim : len(apart) - trim]
    winsorized = [kept[0]] * trim + kept + [kept[-1]] * trim
    n, h = len(apart), len(kept)
    spread = variance(winsorized) * n * (n - 1) / (h * (h - 1))
    error = math.sqrt((max(spread, sampled) + 2 * RESOLUTION**2) / n)
    quantile, center = float(stdtrit(len(kept) - 1, 0.975)), mean(kept)
    return RatioInterval(
        ratio=math.exp(center),
        low=math.exp(center - quantile * error),
        high=math.exp(center + quantile * error),
        # A difference of two runs scatters more than one of them.
        noise=math.sqrt(variance(apart) / 2),
        source="turns",
    )


def _sampled_apart(one: Estimate, two: Estimate) -> float:
    """Variance of what is between two runs, by what is between their parts at the same place."""
    if not one.parts or not two.parts:
        return one.sampling + two.sampling
    between = [later - earlier for earlier, later in zip(one.parts, two.parts, strict=True)]
    return variance(between) / len(between)


def _interval(
    before: Sequence[Estimate], after: Sequence[Estimate], assumed: float
) -> RatioInterval:
    freedom = len(before) + len(after) - 2
    between, source = _between(before, after, assumed)
    center = mean(one.log for one in after) - mean(one.log for one in before)
    error = math.sqrt(sum(_variance(runs, between, freedom) for runs in (before, after)))
    quantile = float(stdtrit(freedom, 0.975)) if freedom else _Z95
    return RatioInterval(
        ratio=math.exp(center),
        low=math.exp(center - quantile * error),
        high=math.exp(center + quantile * error),
        noise=math.sqrt(between),
        source=source,
    )


def _between(
    before: Sequence[Estimate], after: Sequence[Estimate], assumed: float
) -> tuple[float, Source]:
    """Variance from run to run, and where it comes from."""
    if len(before) + len(after) > 2:
        return _pooled(before, after), "repeats"
    # What happened to one of them may have happened to the other.
    drift = DRIFTS**2 * max(one.drift for one in (*before, *after))
    return (drift, "drift") if drift > assumed**2 else (assumed**2, "assumed")


def _variance(runs: Sequence[Estimate], between: float, freedom: int) -> float:
    """Of the mean over the repeats of a run."""
    sampled = mean(one.sampling for one in runs)
    if not freedom:
        return sampled + between
    return (max(sampled, between) + RESOLUTION**2) / len(runs)


def _beyond(parts: Sequence[float], mixture: Sequence[float]) -> float:
    """Variance of the logarithms of the parts, less what that of a mixture is."""
    apart, anyway = (variance(map(math.log, values)) for values in (parts, mixture))
    return max(0.0, apart - anyway)


def _fastest(values: Sequence[float], share: float) -> Estimate | None:
    found = np.asarray(values)
    if len(found) < LEAST_STEPS or not bool((found > 0).all()):
        return None
    n = len(found)
    parts, mixture = (
        [float(np.quantile(found[places], share)) for places in chosen]
        for chosen in (segments(n), mixed(n))
    )
    return Estimate(
        log=math.log(float(np.quantile(found, share))),
        sampling=variance(map(math.log, mixture)) / SEGMENTS,
        drift=_beyond(parts, mixture),
    )


def _pooled(*groups: Sequence[Estimate]) -> float:
    """Variance between repeats, of all groups together."""
    repeated = [[one.log for one in runs] for runs in groups if len(runs) > 1]
    squares = sum((len(logs) - 1) * variance(logs) for logs in repeated)
    return squares / sum(len(logs) - 1 for logs in repeated)
