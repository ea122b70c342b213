"""The columns that charts draw: one value per step over all ranks, in SI units.

Numbers of several ranks are combined as the readings combine them (`trainperf.meters`): shares are
pooled, amounts add up over the slowest rank's time, memory is that of the largest rank.

Drawn are groups of steps: 100,000 steps on 1,000 pixels without losing the one slow step.
Consecutive steps are put into groups of a power of two, and of every column each group keeps the
weighted sum of its values, the weights, the smallest, the largest and where the largest is.  While
steps arrive the groups are joined in pairs, so memory is constant and groups do not move as a run
grows.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.job_block import JobBlock
from trainperf.core.arrays import Column
from trainperf.core.phases import DISQUALIFYING, PHASES, TAGS, Phase
from trainperf.core.steps.block import StepBlock


MOST_GROUPS = 1024
"""A group or two a pixel; joining pairs leaves at least half as many."""

MEMORY = ("allocated_bytes", "reserved_bytes", "peak_bytes", "resident_bytes")
"""Facts of which the largest over ranks is drawn."""

_STEPS = "steps"
"""The column that every step has."""

Weighted = tuple[Column, Column]
"""Quotients and what they are quotients of: their mean is then one of sums."""


class Span(NamedTuple):
    """One column over groups of steps: its mean, and the extremes of single steps."""

    sum: Column
    weight: Column
    """How many values, or the sum of their weights; 0 where none was measured."""
    low: Column
    high: Column
    high_at: Column
    """Number of the first step with the largest value."""

    def mean(self) -> Column:
        """Mean value per group, NaN where there is none."""
        return over(self.sum, self.weight)


class Groups:
    """Columns over steps from *first*, in at most *most* groups.  NaN is a missing value."""

    def __init__(self, first: int = 0, most: int = MOST_GROUPS) -> None:
        self.first = first
        self.width = 1
        """Steps in a group."""
        self._most = most
        # An even number, so that pairs can be joined; no larger ever.
        self._room = most + most % 2
        self._cells = {_STEPS: _empty(self._room)}

    def observe(self, index: Column, columns: Mapping[str, Column | Weighted]) -> None:
        """Take the next steps, in order of *index*; a column may be absent from some calls."""
        if not len(index):
            return
        places = index.astype(np.int64) - self.first
        while int(places[-1]) // self.width >= self._most:
            self.width *= 2
            pairs = np.arange(self._room) // 2
            self._cells = {
                name: _put(_empty(self._room), pairs, cells) for name, cells in self._cells.items()
            }
        alike = np.ones(len(index))
        for name, column in {_STEPS: alike, **columns}.items():
            values, weights = column if isinstance(column, tuple) else (column, alike)
            there = ~np.isnan(values)
            if there.any():
                cells = self._cells.setdefault(name, _empty(self._room))
                steps = np.stack([values * weights, weights, values, values, index])[:, there]
                _put(cells, places[there] // self.width, steps)

    def steps(self) -> npt.NDArray[np.int64]:
        """Steps in each group that holds one."""
        steps: Column = self._cells[_STEPS][1]
        return steps[steps > 0].astype(np.int64)

    def begins(self) -> npt.NDArray[np.int64]:
        """Number of the first step that each of these groups may hold."""
        return self.first + self._filled() * self.width

    def span(self, name: str) -> Span | None:
        """A column over these groups; `None` when no step has a value."""
        cells = self._cells.get(name)
        return None if cells is None else Span(*cells[:, self._filled()])

    def _filled(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self._cells[_STEPS][1])


def _empty(length: int) -> Column:
    """Groups without a value: sum, weight, smallest, largest, and where that is, a row each."""
    return np.tile(np.array([[0.0], [0.0], [np.inf], [-np.inf], [-1.0]]), length)


def _put(cells: Column, groups: npt.NDArray[np.int64], more: Column) -> Column:
    """Put steps, or smaller groups, with the same rows, into the groups that they belong to."""
    before, values = cells[3, groups], more[3]
    np.add.at(cells[0], groups, more[0])
    np.add.at(cells[1], groups, more[1])
    np.minimum.at(cells[2], groups, more[2])
    np.maximum.at(cells[3], groups, values)
    # The first of several stands: it is written last.
    largest = np.flatnonzero((values > before) & (values == cells[3, groups]))[::-1]
    cells[4, groups[largest]] = more[4, largest]
    return cells


def over(amounts: Column, units: Column) -> Column:
    """Quotients, NaN where there is nothing to divide by."""
    measured = units > 0
    return np.where(measured, amounts / np.where(measured, units, 1), np.nan)


class SeriesFold:
    """Groups of the steps from *first* to *last*, both included.

    Args:
        lead: Place of the rank whose phases are drawn; the mean over ranks without one.
        first: Number of the first step.
        last: Number of the last one; to the end of the run without one.
        most: Groups at most.
        beside: Further columns of a block of steps, e.g. what the machine did.
    """

    def __init__(
        self,
        lead: int | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        most: int = MOST_GROUPS,
        beside: Callable[[StepBlock], dict[str, Column]] | None = None,
    ) -> None:
        self.groups = Groups(first, most)
        self._beside = beside or (lambda _: {})
        self._lead = lead
        self._last = np.inf if last is None else last

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of all ranks."""
        index = job.first.index
        part = job.select((index >= self.groups.first) & (index <= self._last))
        if len(part.first):
            drawn = {**columns(part, self._lead), **self._beside(part.first)}
            self.groups.observe(part.first.index, drawn)


def columns(job: JobBlock, lead: int | None) -> dict[str, Column | Weighted]:
    """Columns of some steps of all ranks; *lead* is the place of the rank whose phases count.

    Without one they are the mean over ranks.  Where the leading one took no part in these steps,
    they have no phases.
    """
    slowest_s = np.asarray(np.fmax.reduce([b.wall_ns for b in job.blocks.values()])) / 1e9
    walls = _walls_ns(job)
    amounts = {name: job.total(name) for name in ("tokens_effective", "tokens_padded", "samples")}
    attempts = job.total("attempts")
    return {
        **_phases(job, lead),
        **_tags(job.first, slowest_s),
        "data_wait": _weighted(job.total(Phase.DATA_WAIT), walls),
        "data_stall": _weighted(job.total("data_stall_ns"), walls),
        **{name: _weighted(amount, slowest_s) for name, amount in amounts.items()},
        "overflows": _weighted(job.total("overflows"), attempts),
        "loss_scale": job.first.values("loss_scale"),
        **{name: job.largest(name) for name in MEMORY},
        "loss": job.total("loss") / len(job.blocks),
        **{f"tail:{place}": b.values("tail_ns") / 1e9 for place, b in job.blocks.items()},
    }


def _weighted(amounts: Column, units: Column) -> Weighted:
    return over(amounts, units), units


def _phases(job: JobBlock, lead: int | None) -> dict[str, Column]:
    chosen = job.blocks if lead is None else {p: b for p, b in job.blocks.items() if p == lead}
    if not chosen:
        return {}
    mine, unit = JobBlock(blocks=chosen, everybody=False), 1e9 * len(chosen)
    wall_s = _walls_ns(mine) / unit
    steady = (mine.first.tags & DISQUALIFYING) == 0
    phases = {f"phase:{phase.label}": mine.total(phase) / unit for phase in PHASES}
    return {**phases, "wall": wall_s, "steady_wall": np.where(steady, wall_s, np.nan)}


def _walls_ns(job: JobBlock) -> Column:
    """Time of all ranks together per step."""
    return sum((block.wall_ns for block in job.blocks.values()), np.zeros(len(job.first)))


def _tags(block: StepBlock, slowest_s: Column) -> dict[str, Column]:
    """The slowest rank's step time where a step has the tag."""
    present = int(np.bitwise_or.reduce(block.tags))
    return {
        f"tag:{tag.label}": np.where(block.tags & tag, slowest_s, np.nan)
        for tag in TAGS
        if present & tag
    }
