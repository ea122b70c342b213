"""The columns that charts draw: one value per step over all ranks, in SI units.

Numbers of several ranks are combined as the readings combine them (`trainperf.meters`): shares are
pooled, amounts add up over the slowest rank's time, memory is that of the largest rank.

Drawn are groups of steps: 100,000 steps on 1,000 pixels without losing the one slow step.
Consecutive steps are put into groups of a power of two, and of every column each group keeps its
sum, how many values that was, the smallest, the largest and where the largest is.  While steps
arrive the groups are joined in pairs, so memory is constant and groups do not move as a run grows.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.job_block import JobBlock
from trainperf.core.phases import DISQUALIFYING, PHASES, TAGS, Phase
from trainperf.core.steps.block import Column, StepBlock


MOST_GROUPS = 1024
"""A group or two a pixel; joining pairs leaves at least half as many."""

MEMORY = ("allocated_bytes", "reserved_bytes", "peak_bytes", "resident_bytes")
"""Facts of which the largest over ranks is drawn."""

Ints = npt.NDArray[np.int64]


class Groups:
    """Columns over steps from *first*, in at most *most* groups.  NaN is a missing value."""

    def __init__(self, first: int = 0, most: int = MOST_GROUPS) -> None:
        self.first = first
        self.width = 1
        """Steps in a group."""
        self._most = most
        # An even number, so that pairs can be joined; no larger ever.
        self._room = most + most % 2
        self._spans: dict[str, Span] = {}
        self._steps = np.zeros(self._room, np.int64)

    def observe(self, index: Column, columns: dict[str, Column]) -> None:
        """Take the next steps, in order of *index*; a column may be absent from some calls."""
        if not len(index):
            return
        places = index.astype(np.int64) - self.first
        while int(places[-1]) // self.width >= self._most:
            self._join()
        groups = places // self.width
        begins = np.flatnonzero(np.diff(groups, prepend=-1))
        chosen, sizes = groups[begins], np.diff(begins, append=len(groups))
        self._steps[chosen] += sizes
        for name, values in columns.items():
            if name not in self._spans:
                self._spans[name] = Span.empty(self._room)
            if not np.isnan(values).all():
                self._spans[name].merge(chosen, Span.of(values, index, begins, sizes))

    @property
    def names(self) -> tuple[str, ...]:
        """Columns seen."""
        return tuple(self._spans)

    def filled(self) -> Ints:
        """Places of the groups that hold a step."""
        return np.flatnonzero(self._steps)

    def steps(self) -> Ints:
        """Steps in each group that holds one."""
        return self._steps[self.filled()]

    def begins(self) -> Ints:
        """Number of the first step that each of these groups may hold."""
        return self.first + self.filled() * self.width

    def span(self, name: str) -> "Span | None":
        """A column over these groups; `None` when no step has a value."""
        span = self._spans.get(name)
        if span is None:
            return None
        chosen = span.chosen(self.filled())
        return chosen if chosen.count.any() else None

    def _join(self) -> None:
        self.width *= 2
        joined = self._steps[::2] + self._steps[1::2]
        self._steps = np.concatenate((joined, np.zeros(len(joined), np.int64)))
        for span in self._spans.values():
            span.join()


class Span:
    """One column over groups: sum and count of its values, and the extremes of single steps."""

    def __init__(self, cells: Column) -> None:
        self.cells = cells
        """Sum, count, smallest, largest, and where that is: a row each."""

    @classmethod
    def empty(cls, length: int) -> "Span":
        """Groups without a value."""
        return cls(np.tile(np.array([[0.0], [0.0], [np.inf], [-np.inf], [-1.0]]), length))

    @classmethod
    def of(cls, values: Column, index: Column, begins: npt.NDArray[np.intp], sizes: Ints) -> "Span":
        """The column of some steps whose groups begin at *begins*."""
        measured = ~np.isnan(values)
        largest = np.where(measured, values, -np.inf)
        high = np.maximum.reduceat(largest, begins)
        hits = np.flatnonzero(largest == np.repeat(high, sizes))
        rows = (
            np.add.reduceat(np.where(measured, values, 0.0), begins),
            np.add.reduceat(measured.astype(np.float64), begins),
            np.minimum.reduceat(np.where(measured, values, np.inf), begins),
            high,
            index[hits[np.searchsorted(hits, begins)]],
        )
        return cls(np.stack(rows))

    @property
    def sum(self) -> Column:
        """Of the values in each group."""
        row: Column = self.cells[0]
        return row

    @property
    def count(self) -> Column:
        """How many values."""
        row: Column = self.cells[1]
        return row

    @property
    def low(self) -> Column:
        """The smallest of a single step."""
        row: Column = self.cells[2]
        return row

    @property
    def high(self) -> Column:
        """The largest of a single step."""
        row: Column = self.cells[3]
        return row

    @property
    def high_at(self) -> Ints:
        """Number of the first step with the largest value."""
        row: Ints = self.cells[4].astype(np.int64)
        return row

    def mean(self) -> Column:
        """Mean value per group, NaN where there is none."""
        return over(self.sum, self.count)

    def merge(self, chosen: Ints, new: "Span") -> None:
        """Add later steps to the groups *chosen*."""
        self.cells[:, chosen] = _joined(self.cells[:, chosen], new.cells)

    def join(self) -> None:
        """Two neighbouring groups become one, in the first half of the room."""
        joined = _joined(self.cells[:, ::2], self.cells[:, 1::2])
        self.cells = np.concatenate((joined, Span.empty(joined.shape[1]).cells), axis=1)

    def chosen(self, places: Ints) -> "Span":
        """The column over some of the groups."""
        return Span(self.cells[:, places])


def _joined(earlier: Column, later: Column) -> Column:
    """Groups of earlier and of later steps as one."""
    return np.stack(
        (
            earlier[0] + later[0],
            earlier[1] + later[1],
            np.minimum(earlier[2], later[2]),
            np.maximum(earlier[3], later[3]),
            np.where(later[3] > earlier[3], later[4], earlier[4]),
        )
    )


def over(amounts: Column, units: Column | Ints) -> Column:
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
        self._beside = beside
        self._lead = lead
        self._last = last

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of all ranks."""
        index = job.first.index
        chosen = np.logical_and(
            index >= self.groups.first, True if self._last is None else index <= self._last
        )
        if not chosen.any():
            return
        part = job if chosen.all() else job.select(chosen)
        drawn = columns(part, self._lead)
        if self._beside is not None:
            drawn |= self._beside(part.first)
        self.groups.observe(index[chosen], drawn)


def columns(job: JobBlock, lead: int | None) -> dict[str, Column]:
    """Columns of some steps of all ranks; *lead* is the place of the rank whose phases count.

    Without one they are the mean over ranks.  Where the leading one took no part in these steps,
    they have no phases.
    """
    if lead is not None:
        blocks = {lead: job.blocks[lead]} if lead in job.blocks else {}
        mine = JobBlock(blocks=blocks, everybody=False)
    else:
        mine = job
    slowest_s = job.slowest_ns / 1e9
    own = {**_phases(mine), **_device(mine)} if mine.blocks else {}
    return {
        **own,
        **_tags(job.first, slowest_s),
        **_shares(job),
        **_rates(job, slowest_s),
        **_scaler(job),
        **_state(job),
        **_tails(job),
    }


def _phases(mine: JobBlock) -> dict[str, Column]:
    ranks = len(mine.blocks)
    drawn = {f"phase:{phase.label}": mine.total(phase.label) / ranks / 1e9 for phase in PHASES}
    wall_s = _walls_ns(mine) / ranks / 1e9
    steady = (mine.first.tags & DISQUALIFYING) == 0
    return {**drawn, "wall": wall_s, "steady_wall": np.where(steady, wall_s, np.nan)}


def _walls_ns(job: JobBlock) -> Column:
    """Time of all ranks together per step."""
    return sum((block.wall_ns for block in job.blocks.values()), np.zeros(len(job.first)))


def _device(mine: JobBlock) -> dict[str, Column]:
    if mine.first.schema.synchronous:
        return {}
    names = ("data_stall_ns", "h2d_device_ns", "tail_ns")
    return {name: mine.total(name) / len(mine.blocks) / 1e9 for name in names}


def _tags(block: StepBlock, slowest_s: Column) -> dict[str, Column]:
    """The slowest rank's step time where a step has the tag."""
    present = int(np.bitwise_or.reduce(block.tags))
    return {
        f"tag:{tag.label}": np.where(block.tags & tag, slowest_s, np.nan)
        for tag in TAGS
        if present & tag
    }


def _shares(job: JobBlock) -> dict[str, Column]:
    waited, stalled = job.total(Phase.DATA_WAIT.label), job.total("data_stall_ns")
    wall = _walls_ns(job)
    return {
        "waited": waited,
        "stalled": stalled,
        "walls": wall,
        "stalled_walls": np.where(np.isnan(stalled), np.nan, wall),
        "wait_fraction": over(waited, wall),
        "stall_fraction": over(stalled, wall),
    }


def _rates(job: JobBlock, slowest_s: Column) -> dict[str, Column]:
    rates: dict[str, Column] = {}
    for name in ("tokens_effective", "tokens_padded", "samples"):
        amount = job.total(name)
        rates[name] = amount
        rates[f"{name}_per_s"] = over(amount, slowest_s)
        for place, block in job.blocks.items():
            # The time that goes with an amount is that of the steps whose amount is known.
            missing = np.isnan(amount)
            rates[f"{name}:wall:{place}"] = np.where(missing, np.nan, block.wall_ns / 1e9)
    return rates


def _scaler(job: JobBlock) -> dict[str, Column]:
    return {
        "attempts": job.total("attempts"),
        "overflows": job.total("overflows"),
        "loss_scale": job.first.values("loss_scale"),
    }


def _state(job: JobBlock) -> dict[str, Column]:
    largest = {name: job.largest(name) for name in MEMORY}
    return {**largest, "loss": job.total("loss") / len(job.blocks)}


def _tails(job: JobBlock) -> dict[str, Column]:
    waits = {place: block.values("tail_ns") / 1e9 for place, block in job.blocks.items()}
    tails = {f"tail:{place}": wait for place, wait in waits.items()}
    if len(waits) < 2:
        return tails
    least = np.minimum.reduce(list(waits.values()))
    return {**tails, **{f"skew:{place}": wait - least for place, wait in waits.items()}}
