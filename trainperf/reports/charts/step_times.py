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
    Point,
    Unit,
    area,
    box,
    curve,
    keys,
    lanes,
    moment,
    note,
    short,
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
        low, high = low - margin, high + margin
        self._each = max(1, -(-(high - low) // most))
        self._number = -(-(high - low) // self._each)
        self._low = low
        places = low + self._each * np.arange(self._number + 1)
        self.edges_s: Column = np.exp(places * np.log(GROWTH))

    def counts(self, distribution: Distribution) -> npt.NDArray[np.int64]:
        """Steps in each."""
        counted = np.zeros(self._number * self._each, np.int64)
        start = distribution.lowest - self._low
        if distribution.counts.any():
            counted[start : start + len(distribution.counts)] = distribution.counts
        return np.add.reduceat(counted, np.arange(0, len(counted), self._each))


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


def histogram(walls: WallsFold) -> list[Chart]:
    """Steps by their time, on a logarithmic axis: one slow step does not flatten the rest."""
    if not walls.every():
        return []
    bins = Bins(walls.every(), _BINS)
    edges = bins.edges_s
    steady = np.zeros(len(edges) - 1, np.int64)
    if walls.steady is not None:
        steady = bins.counts(walls.steady)
    there = bool(steady.any())
    frame = Frame(
        across=_across(edges),
        up=Axis(low=0.0, high=top([float(steady.max())]) if there else 0.0, say=short, whole=True),
        height=190 if there else _EMPTY_PX,
    )
    marks = list(_bars(frame, edges, steady))
    over = []
    if walls.steady is not None:
        for height, (name, percentile) in enumerate((("median", 50), ("p95", 95), ("p99", 99))):
            at_s = walls.steady.quantile(percentile)
            marks.append(upright(frame.x(at_s), frame.height))
            over.append(note(frame.x(at_s), 2.0 + 15 * height, f"{name} {duration(at_s)}"))
    rows = [
        _lane(frame, edges, name, bins.counts(distribution))
        for name, distribution in walls.left_out.items()
    ]
    names = ("step time", "steady steps" if there else "no steady step")
    picture = frame.picture("steady steps by their time", marks, names=names, over=over)
    return [Chart(Markup(lanes(rows) + picture))]


def beside(sides: Sequence[Distribution | None], names: Sequence[str]) -> list[Chart]:
    """The steady step times of two runs, as shares of each one's; none if one has none."""
    measured = [side for side in sides if side is not None]
    if len(measured) < len(sides):
        return []
    bins = Bins(measured, _BINS)
    edges = bins.edges_s
    shares = [bins.counts(side) / side.n for side in measured]
    frame = Frame(
        across=_across(edges),
        up=Axis(low=0.0, high=top([float(side.max()) for side in shares]), unit=Unit.of_shares()),
        height=220,
    )
    marks, over = [], []
    for place, (side, share, colour) in enumerate(zip(measured, shares, SIDES, strict=True)):
        outline = list(_outline(frame, edges, share))
        marks += [area(outline, f"band g{colour}"), curve(outline, f"s{colour}")]
        median_s = side.quantile(50)
        marks.append(upright(frame.x(median_s), frame.height))
        over.append(note(frame.x(median_s), 2.0 + 15 * place, f"{duration(median_s)}"))
    picture = frame.picture(
        "steady step times of both runs",
        marks,
        names=("step time", "share of the steady steps"),
        over=over,
    )
    named = keys((name, f"k{colour}") for name, colour in zip(names, SIDES, strict=True))
    return [Chart(Markup(picture + named))]


def _across(edges: Column) -> Axis:
    low, high = float(edges[0]), float(edges[-1])
    wide = high / low >= _DECADE
    return Axis(
        low=low,
        high=high,
        unit=Unit.of_seconds(high),
        logarithmic=True,
        say=moment if wide else None,
    )


def _bars(frame: Frame, edges: Column, counts: npt.NDArray[np.int64]) -> Iterator[Markup]:
    for place in np.flatnonzero(counts):
        left, right = frame.x(edges[place]), frame.x(edges[place + 1])
        high = max(frame.height - frame.y(float(counts[place])), _LEAST_PX)
        label = _label(edges, int(place), int(counts[place]))
        yield box((left, frame.height - high), (right - left - 1.0, high), "g0", label)


def _label(edges: Column, place: int, number: int) -> str:
    low, high = (duration(float(edges[side])) for side in (place, place + 1))
    return f"{plural(number, 'step')} of {low} to {high}"


def _lane(frame: Frame, edges: Column, name: str, counts: npt.NDArray[np.int64]) -> Lane:
    return Lane(
        name=words(name),
        marks=tuple(
            (
                frame.x(edges[place]),
                frame.x(edges[place + 1]) - frame.x(edges[place]) - 1.0,
                f"{_label(edges, int(place), int(counts[place]))}: {words(name)}",
            )
            for place in np.flatnonzero(counts)
        ),
    )


def _outline(frame: Frame, edges: Column, shares: Column) -> Iterator[Point]:
    yield frame.x(edges[0]), float(frame.height)
    for place, share in enumerate(shares):
        for edge in (edges[place], edges[place + 1]):
            yield frame.x(edge), frame.y(float(share))
    yield frame.x(edges[-1]), float(frame.height)
