"""Comparison of two single runs within the same pace of the machine they ran on.

While a run trains, a small fixed piece of work is timed every few steps: its *pace*.  A host that
lends its processors out has a few speeds and changes between them, so every step is labelled with
the pace around it, and steps are compared only with steps of the other run at the same pace
(post-stratification: Holt and Smith, JRSS A 142, 1979).  Where the two runs share too few paces, a
slope stands in that is bounded and hardly believed.

The pace does not show other processes that take the core for milliseconds at a time.  Steps that
waited for a processor are set apart, where that was counted.  What is left of it moves a run's slow
steps more than its fast ones, while a change of the code moves both: where the quantiles disagree,
the interval is as much wider.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.core.stats.bootstrap import Z95, RatioInterval, interval_around


LEAST_TIMINGS = 16
"""Fewer timings of the pace say nothing about a run."""

BIN = 0.12
"""Width of a pace, as a logarithm: timings scatter by half as much."""

LEAST_STEPS = 8
"""Of either run at a pace, so that it counts."""

SHARED = 0.2
"""Share of either run's steps at paces that both have; with less a slope stands in."""

WAITED = 0.02
"""Share of a step's time from which on waiting for a processor sets it apart."""

UNDISTURBED = 0.2
"""Share of a run's steps that did not wait; with less none are set apart."""

SLOPE, DOUBT = 0.5, 0.4
"""What a step slows down by, relative to the pace, and its standard deviation: between none of it
and more than all within two of them."""

LEFT = 0.025
"""Relative standard deviation from run to run that one pace leaves."""

BLOCKS = 10
"""Parts of a run, in order, that are left out in turn: their number for a jackknife."""

_QUANTILES = (0.1, 0.25, 0.5)
_FASTEST = 0.05
_MOST_WAITED = 0.99

Column = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedSteps:
    """Steady steps of a run, in order: logarithms of their times, and of the pace around each."""

    steps: Column
    paces: Column
    waited: Column
    """Shares of their times in which they waited for a processor; 0 where that was not counted."""

    def only(self, chosen: npt.NDArray[np.bool_]) -> "PacedSteps":
        """Some of the steps."""
        return PacedSteps(
            steps=self.steps[chosen], paces=self.paces[chosen], waited=self.waited[chosen]
        )

    def undisturbed(self) -> "PacedSteps":
        """The steps that hardly waited for a processor; all of them where those are few."""
        calm = self.waited < WAITED
        return self.only(calm) if calm.mean() >= UNDISTURBED else self


def paced_steps(
    walls: Column, places: Column, paces: Column, waited: Column | None = None
) -> PacedSteps | None:
    """Steps labelled with the pace; `None` where it was timed too rarely.

    Between timings the pace is on a line; each is the median of itself and its neighbours.

    Args:
        walls: Times of steady steps, in order.
        places: Which step each timing followed, as an index of *walls*, ascending.
        paces: The timings.
        waited: Share of each step in which it waited for a processor.
    """
    if len(paces) < LEAST_TIMINGS:
        return None
    logs = np.pad(np.log(paces), 1, mode="edge")
    calm = np.median([logs[:-2], logs[1:-1], logs[2:]], axis=0)
    return PacedSteps(
        steps=np.log(walls),
        paces=np.interp(np.arange(len(walls)), places, calm),
        waited=np.zeros(len(walls)) if waited is None else waited,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """Two single runs compared at one pace; logarithms of the second's relative to the first's."""

    steps: float
    """How much longer the steps are, at one pace: their lower quartile."""
    machine: float
    """How much longer the machine took for the same work."""
    explained: float
    """How much longer the machine made the steps."""
    variance: float
    """Of *steps*."""

    def disagreement(self, first_mean: float, second_mean: float) -> float:
        """Variance of a mean, which shows in full what takes the core away now and then.

        As much as it disagrees with the fast steps, it may be wrong.

        Args:
            first_mean: Logarithm of the first run's mean of ordinary steps.
            second_mean: Of the second's.
        """
        return (second_mean - first_mean - self.steps - self.explained) ** 2

    def interval(
        self, assumed: float, log_ratio: float | None = None, sampling: float = 0.0
    ) -> RatioInterval:
        """The ratio of the steps, or of another time per step, with its 95 % interval.

        Args:
            assumed: Relative standard deviation from run to run beyond the pace.
            log_ratio: Of the other time, not at one pace.
            sampling: Variance of that.
        """
        log = self.steps if log_ratio is None else log_ratio - self.explained
        reach = Z95 * math.sqrt(self.variance + sampling + 2 * assumed**2)
        return interval_around(log, reach, noise=assumed, source="pace")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Apart:
    """How far the quantiles of two runs are apart."""

    quantiles: Column
    shared: float
    """The lesser share of a run's steps that were compared."""


def at_one_pace(first: PacedSteps, second: PacedSteps, *, alone: bool = False) -> Paced:
    """Compare the steps of two runs as if the machine had been as fast during both.

    Args:
        first: Steps of the one run.
        second: Of the other.
        alone: Whether it is their own processes that steps wait for.  Otherwise as much as waiting
            may have made the steps of one run longer than the other's, their ratio may be wrong.
    """
    machine = float(np.median(second.paces) - np.median(first.paces))
    raw = _raw(first, second)
    apart = _within(first, second)
    compared: Callable[[PacedSteps, PacedSteps], _Apart | None] = _within
    if apart is not None and apart.shared >= SHARED:
        fastest = np.quantile(second.steps, _FASTEST) - np.quantile(first.steps, _FASTEST)
        doubt = (float(apart.quantiles[1] - fastest) / 2) ** 2
    else:
        apart, compared = _sloped(first, second), _sloped
        doubt = (DOUBT * machine) ** 2
    fast, steps, middle = apart.quantiles.tolist()
    sampled = _jackknife(first, lambda part: compared(part, second))
    sampled += _jackknife(second, lambda part: compared(first, part))
    return Paced(
        steps=steps,
        machine=machine,
        explained=float(raw[1]) - steps,
        variance=sampled
        + ((middle - fast) / 2) ** 2
        + doubt
        + (0.0 if alone else (_lengthened(second) - _lengthened(first)) ** 2)
        + 2 * LEFT**2,
    )


def _lengthened(run: PacedSteps) -> float:
    """By how much steps are longer for having waited for a processor, as a logarithm."""
    return -math.log1p(-min(float(run.waited.mean()), _MOST_WAITED))


def _raw(first: PacedSteps, second: PacedSteps) -> Column:
    difference: Column = np.quantile(second.steps, _QUANTILES) - np.quantile(
        first.steps, _QUANTILES
    )
    return difference


def _within(first: PacedSteps, second: PacedSteps) -> _Apart | None:
    """At each pace that both have, weighted by the steps there."""
    at = [np.floor(run.paces / BIN) for run in (first, second)]
    total, weights, counts = np.zeros(len(_QUANTILES)), 0.0, np.zeros(2)
    for pace in np.intersect1d(at[0], at[1]):
        here = [run.only(paces == pace) for run, paces in zip((first, second), at, strict=True)]
        numbers = [len(run.steps) for run in here]
        if min(numbers) >= LEAST_STEPS:
            weight = numbers[0] * numbers[1] / sum(numbers)
            total, weights = total + weight * _raw(*here), weights + weight
            counts += numbers
    if not weights:
        return None
    shares = counts / (len(first.steps), len(second.steps))
    return _Apart(quantiles=total / weights, shared=float(shares.min()))


def _sloped(first: PacedSteps, second: PacedSteps) -> _Apart:
    """All steps, as if each run had had one pace."""
    machine = np.median(second.paces) - np.median(first.paces)
    return _Apart(quantiles=_raw(first, second) - SLOPE * machine, shared=0.0)


def _jackknife(run: PacedSteps, compared: Callable[[PacedSteps], _Apart | None]) -> float:
    """Variance of the lower quartile's difference: neighbours in time are left out together."""
    block = np.arange(len(run.steps)) * BLOCKS // len(run.steps)
    without = [compared(run.only(block != number)) for number in range(BLOCKS)]
    values = [apart.quantiles[1] for apart in without if apart is not None]
    return float(np.var(values)) * (len(values) - 1) if len(values) > 1 else 1.0
