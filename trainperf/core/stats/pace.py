"""Comparison of two single runs at one pace of the machine they ran on.

While a run trains, a small fixed piece of work is timed every few steps: its *pace*.  Windows of
steps say how much longer steps take where the pace is slower: a slope, learned inside the runs
themselves as far as the speed changed there.  Two runs are compared at one pace (an analysis of
covariance: Cochran, Biometrics 13, 1957).  A slope holds for one loop and one kind of slowness, so
the farther the paces are apart, the less is known: that widens the interval.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainperf.core.stats.bootstrap import Z95, RatioInterval, interval_around


LEAST_TIMINGS = 4
"""Timings of the pace in a window, so that their median is steady."""

MOST_WINDOWS = 40
"""Of a run."""

LEAST_WINDOWS = 4
"""Fewer say nothing about a run."""

SLOPE, SLOPE_SPREAD = 0.65, 0.3
"""What a step slows down by, relative to the pace, before anything is known: by most of it, and
between none and all of it within two standard deviations."""

DOUBT = 0.45
"""Standard deviation of the slope from one run to the other: between identical runs of five kinds
of loop on a host that changed its speed, while this was tuned."""

ALIKE = 3.0
"""Neighbouring windows are alike: so many of them count as one."""

_NO_NOISE = 1e-6

Column = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedWindows:
    """Windows of a run's steps, in order: logarithms of the median step and of the median pace."""

    steps: Column
    paces: Column
    doubt: float
    """Variance of a window's pace from the scatter of its timings."""


def paced_windows(walls: Column, paces: Column) -> PacedWindows | None:
    """Windows of as many steps each; `None` where the pace was timed too rarely.

    Args:
        walls: Times of steady steps, in order.
        paces: The pace after each; NaN where it was not timed.
    """
    timed = int(np.isfinite(paces).sum())
    number = min(MOST_WINDOWS, timed // LEAST_TIMINGS)
    if number < LEAST_WINDOWS:
        return None
    # Cut so that each has as many timings.
    rank = np.cumsum(np.isfinite(paces)) - 1
    place = np.clip(rank * number // timed, 0, number - 1)
    windows = [(walls[place == n], _logs(paces[place == n])) for n in range(number)]
    return PacedWindows(
        steps=np.array([math.log(np.median(steps)) for steps, _ in windows]),
        paces=np.array([np.median(logs) for _, logs in windows]),
        # Of a median of n: pi/2 times that of a mean.
        doubt=float(np.median([1.57 * np.var(logs, ddof=1) / len(logs) for _, logs in windows])),
    )


def _logs(paces: Column) -> Column:
    logs: Column = np.log(paces[np.isfinite(paces)])
    return logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """Two single runs compared at one pace; logarithms of the second's relative to the first's."""

    steps: float
    """How much longer the steps are, at one pace."""
    machine: float
    """How much longer the machine took for the same work."""
    explained: float
    """How much longer the machine made the steps."""
    variance: float
    """Of *steps*: from the scatter of the windows, and from not knowing the slope."""

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


def at_one_pace(first: PacedWindows, second: PacedWindows) -> Paced:
    """Compare the steps of two runs as if the machine had been as fast during both."""
    runs = (first, second)
    centred = [(run.steps - run.steps.mean(), run.paces - run.paces.mean()) for run in runs]
    products = sum(float(steps @ paces) for steps, paces in centred)
    squares = sum(
        max(0.0, float(paces @ paces) - len(paces) * run.doubt)
        for (_, paces), run in zip(centred, runs, strict=True)
    )
    noise = ALIKE * float(np.var(np.concatenate([y - SLOPE * x for y, x in centred]))) + _NO_NOISE
    prior = 1 / SLOPE_SPREAD**2
    slope = (SLOPE * prior + products / noise) / (prior + squares / noise)
    machine = float(second.paces.mean() - first.paces.mean())
    scatter = sum(
        ALIKE * float(np.var(steps - slope * paces)) / len(steps) for steps, paces in centred
    )
    return Paced(
        steps=float(second.steps.mean() - first.steps.mean()) - slope * machine,
        machine=machine,
        explained=slope * machine,
        variance=scatter + (DOUBT * machine) ** 2,
    )
