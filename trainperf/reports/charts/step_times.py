"""The distribution of step times: steady steps as bars, excluded ones by their reason."""

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.job_block import JobBlock
from trainperf.core.formatting.html.figures import (
    Axis,
    Frame,
    Lane,
    Unit,
    box,
    keys,
    lanes,
    moment,
    note,
    top,
    upright,
)
from trainperf.core.formatting.html.markup import Markup
from trainperf.core.formatting.units import duration, plural, words
from trainperf.core.phases import DISQUALIFYING, TAGS
from trainperf.core.stats.quantiles import GROWTH, Distribution
from trainperf.core.steps.block import MEAN_OF, Column
from trainperf.reports.layout.document import Chart


class WallsFold:
    """The slowest rank's step time: of steady steps, and of those left out under each tag.

    A step with several tags is counted once, under the first in the order of `Tag`, as in the
    summary; times are right to 0.1 %.
    """

    def __init__(self) -> None:
        self.steady: Distribution | None = None
        self.left_out: dict[str, Distribution] = {}
        """By the tag's label."""

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of all ranks."""
        single = job.first.fact(MEAN_OF)
        if single is not None and not (single == 1).all():
            job = job.select(single == 1)
        if not len(job.first):
            return
        walls = job.slowest_ns / 1e9
        left = job.first.tags & DISQUALIFYING
        self.steady = _with(self.steady, walls[left == 0])
        for tag in TAGS:
            mine = (left & tag) != 0
            if mine.any():
                walls_of_tag = _with(self.left_out.get(tag.label), walls[mine])
                if walls_of_tag is not None:
                    self.left_out[tag.label] = walls_of_tag
                left = np.where(mine, 0, left)

    def every(self) -> list[Distribution]:
        """All of them that have a step."""
        steady = [] if self.steady is None else [self.steady]
        return [*steady, *self.left_out.values()]


SIDES = (3, 0)
"""Colours of lines before and after a change."""

_MARGIN = 3
"""Empty bins at either end at least."""


def pooled(repeats: Sequence[WallsFold]) -> Distribution | None:
    """Steady steps of all repeats of a run."""
    steady = [walls.steady for walls in repeats if walls.steady is not None]
    return reduce(lambda merged, other: merged.merge(other), steady) if steady else None


class Bins:
    """Bins for several distributions that are drawn together, at most *most*.

    Each holds as many of the distributions' own bins as the next: the counts are exact.
    """

    def __init__(self, every: Sequence[Distribution], most: int) -> None:
        # Times of no length have no place on a logarithmic axis.
        filled = [part for part in every if part.counts.any()]
        low = min((part.lowest for part in filled), default=0)
        high = max((part.lowest + len(part.counts) for part in filled), default=1)
        margin = max(_MARGIN, (high - low) // 32)
        self._each = max(1, -(-(high - low + 2 * margin) // most))
        self._low = low - margin
        self._number = -(-(high + margin - self._low) // self._each)
        places = self._low + self._each * np.arange(self._number + 1)
        self.edges_s: Column = np.exp(places * np.log(GROWTH))

    def counts(self, distribution: Distribution) -> npt.NDArray[np.int64]:
        """Steps in each."""
        counted = np.zeros(self._number * self._each, np.int64)
        start = distribution.lowest - self._low
        if distribution.counts.any():
            counted[start : start + len(distribution.counts)] = distribution.counts
        binned: npt.NDArray[np.int64] = counted.reshape(-1, self._each).sum(axis=1)
        return binned


def _with(before: Distribution | None, walls: Column) -> Distribution | None:
    added = Distribution.of(walls) if len(walls) else None
    if before is None or added is None:
        return before or added
    return before.merge(added)


_BINS = 90
_LEAST_PX = 2.0
"""Height of a bar of one step, however many the others hold."""

_EMPTY_PX = 24
"""Height of a picture without a steady step: only the rows above it have something to show."""

_DECADE = 8.0
"""Ratio of the axis's ends from which each tick is said in its own unit."""

_PERCENTILES = (("median", 50), ("p95", 95), ("p99", 99))


def histogram(walls: WallsFold) -> list[Chart]:
    """Steps by their time, on a logarithmic axis: one slow step does not flatten the rest."""
    if not walls.every():
        return []
    bins = Bins(walls.every(), _BINS)
    steady = [] if walls.steady is None else [walls.steady]
    frame = _frame(bins, steady)
    over = [
        note(frame.x(each.quantile(percentile)), 2.0 + 15 * height, _mark(each, name, percentile))
        for each in steady
        for height, (name, percentile) in enumerate(_PERCENTILES)
    ]
    marks = [bar for each in steady for bar in _bars(frame, bins, each, "g0")]
    marks += [
        upright(frame.x(each.quantile(percentile)), frame.height)
        for each in steady
        for _, percentile in _PERCENTILES
    ]
    rows = [_lane(frame, bins, name, each) for name, each in walls.left_out.items()]
    names = ("step time", "share of the steady steps" if steady else "no steady step")
    picture = frame.picture("steady steps by their time", marks, names=names, over=over)
    return [Chart(Markup(lanes(rows) + picture))]


def _mark(distribution: Distribution, name: str, percentile: int) -> str:
    return f"{name} {duration(distribution.quantile(percentile))}".strip()


def beside(sides: Sequence[Distribution | None], names: Sequence[str]) -> list[Chart]:
    """The steady step times of two runs, as shares of each one's; none if one has none."""
    measured = [side for side in sides if side is not None]
    if len(measured) < len(sides):
        return []
    bins = Bins(measured, _BINS)
    frame = _frame(bins, measured)
    marks, over = [], []
    for place, (side, colour) in enumerate(zip(measured, SIDES, strict=True)):
        at = frame.x(side.quantile(50))
        marks += [*_bars(frame, bins, side, f"band g{colour}"), upright(at, frame.height)]
        over.append(note(at, 2.0 + 15 * place, _mark(side, "", 50)))
    axes = ("step time", "share of the steady steps")
    picture = frame.picture("steady step times of both runs", marks, names=axes, over=over)
    named = keys((name, f"k{colour}") for name, colour in zip(names, SIDES, strict=True))
    return [Chart(Markup(picture + named))]


def _frame(bins: Bins, sides: Sequence[Distribution]) -> Frame:
    """Times across, shares of each side's steps up."""
    low, high = float(bins.edges_s[0]), float(bins.edges_s[-1])
    wide = high / low >= _DECADE
    largest = [float(bins.counts(side).max() / side.n) for side in sides]
    return Frame(
        across=Axis(
            low=low,
            high=high,
            unit=Unit.of_seconds(high),
            logarithmic=True,
            say=moment if wide else None,
        ),
        up=Axis(low=0.0, high=top(largest) if sides else 0.0, unit=Unit.of_shares()),
        height=190 if sides else _EMPTY_PX,
    )


def _bars(frame: Frame, bins: Bins, side: Distribution, kind: str) -> Iterator[Markup]:
    counts = bins.counts(side)
    for left, wide, label, number in _filled(frame, bins, counts):
        high = max(frame.height - frame.y(number / side.n), _LEAST_PX)
        yield box((left, frame.height - high), (wide, high), kind, label)


def _filled(
    frame: Frame, bins: Bins, counts: npt.NDArray[np.int64]
) -> Iterator[tuple[float, float, str, int]]:
    """Of each bin that holds a step: where it is, how wide, what is said of it, and how many."""
    for place in np.flatnonzero(counts).tolist():
        low, high = (float(edge) for edge in bins.edges_s[place : place + 2])
        number = int(counts[place])
        label = f"{plural(number, 'step')} of {duration(low)} to {duration(high)}"
        yield frame.x(low), frame.x(high) - frame.x(low) - 1.0, label, number


def _lane(frame: Frame, bins: Bins, name: str, excluded: Distribution) -> Lane:
    filled = _filled(frame, bins, bins.counts(excluded))
    marks = tuple((left, wide, f"{label}: {words(name)}") for left, wide, label, _ in filled)
    return Lane(name=words(name), marks=marks)
