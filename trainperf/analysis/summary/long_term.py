"""Changes of a run while it goes on: steps that take longer than before.

Levels are what a step took in each of up to 2,048 consecutive pieces of the run, per rank: of
steady steps the means of phases and of some facts.  Pieces get longer with the run.

A change is two sides of the run, before and after: on either side of a step from which on it
takes longer, or the beginning and the end of a run that gets slower bit by bit.  What differs
between them, a phase on a rank or a fact, is the same question of both.

Changes are told from the steps of the lowest rank: ranks that wait for each other have the same.
Of several ranks the cause is looked for on the one whose own work changed most, because the others
wait for it.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from trainperf.analysis.run.job_block import FEW_RANKS, JobBlock
from trainperf.analysis.summary.schema import Moved, RunChange
from trainperf.core.arrays import Column
from trainperf.core.findings import LIMITS
from trainperf.core.phases import DISQUALIFYING, PHASES, Phase
from trainperf.core.stats.changes import LEAST_LEVELS, change_points, drift
from trainperf.core.steps.block import StepBlock


LEAST_LASTS_S = 30.0
"""How long a level lasts, or a drift goes on, that is told of."""

MOST_LEVELS = 2048
LEAST_STEPS = 16
"""Of a piece: a mean of fewer is that of single ones."""

FACTS = (
    "pace_ns",
    "waited_ns",
    "gc_ns",
    "tail_ns",
    "data_stall_ns",
    "tokens_padded",
    "h2d_bytes",
    "samples",
    "owned_bytes",
    "allocated_bytes",
    "cache_keys",
    "overhead_ns",
    "device_used_bytes",
)
"""What may grow, or change, together with a step."""

COLUMNS = ("first", "steady", *(phase.label for phase in PHASES), *FACTS)
"""Of a piece: its first step, how many are steady, and means of these."""

_FIRST, _STEADY, _MEANS = range(3)
_WAITING = (Phase.BACKWARD, Phase.LOOP)
"""Where a rank waits for others."""
_DEVICE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


Sides = Mapping[int, tuple[Column, Column]]
"""Rank to its pieces before and after."""


class LevelsFold:
    """Takes the steps of all ranks, of many ranks of the lowest; a later attempt goes on."""

    def __init__(self, ranks: int) -> None:
        # Half a megabyte per rank.
        self._rows: list[list[Column]] = [[] for _ in range(ranks if ranks <= FEW_RANKS else 1)]
        self._steps = LEAST_STEPS

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of those ranks that took part."""
        for place, block in job.blocks.items():
            if place < len(self._rows):
                self._rows[place].append(joined(_rows(block), self._steps))
        while max(sum(map(len, rows)) for rows in self._rows) > MOST_LEVELS:
            self._rows = [
                [joined(np.concatenate(rows), self._steps)] if rows else [] for rows in self._rows
            ]
            self._steps *= 2

    def levels(self) -> list[Column]:
        """Those of each rank: a row for each piece, NaN where nothing was measured."""
        ranks = (np.concatenate([np.empty((0, len(COLUMNS))), *rows]) for rows in self._rows)
        return [joined(pieces[pieces[:, _STEADY] > 0], self._steps) for pieces in ranks]


def _rows(block: StepBlock) -> Column:
    """A piece per step."""
    means = [*map(block.host_ns, PHASES), *map(block.values, FACTS)]
    return np.column_stack([block.index, (block.tags & DISQUALIFYING) == 0, *means])


def phases_s(levels: Column) -> Column:
    """What each phase takes in each piece; added up, a step."""
    return levels[:, _MEANS : _MEANS + len(PHASES)] / 1e9


def walls_s(levels: Column) -> Column:
    """What a step takes in each piece."""
    return np.asarray(phases_s(levels).sum(axis=1))


def joined(matrix: Column, steps: int) -> Column:
    """Rows that begin in the same piece of so many steps as one: means of their steady steps."""
    firsts = np.flatnonzero(np.diff(matrix[:, _FIRST] // steps, prepend=-1))
    weights = np.where(np.isnan(matrix), 0.0, matrix[:, _STEADY, None])
    with np.errstate(invalid="ignore"):
        pieces = np.add.reduceat(np.nan_to_num(matrix) * weights, firsts)
        pieces /= np.add.reduceat(weights, firsts)
    pieces[:, _FIRST] = matrix[firsts, _FIRST]
    pieces[:, _STEADY] = np.add.reduceat(matrix[:, _STEADY], firsts)
    return pieces


def long_term(ranks: Mapping[int, Column]) -> tuple[RunChange, ...]:
    """Of the levels of some ranks, the lowest first."""
    first = next(iter(ranks.values()))
    if len(first) < LEAST_LEVELS:
        return ()
    ranks = {rank: each for rank, each in ranks.items() if len(each)}
    gradual = _gradual(ranks)
    if gradual is not None:
        # What rises from nearly nothing begins with jumps that are large for its level.
        return (gradual,)
    edges = [0, *change_points(walls_s(first)), len(first)]
    levels = (_sudden(ranks, span) for span in zip(edges, edges[1:], edges[2:], strict=False))
    return tuple(level for level in levels if level is not None)


def _gradual(ranks: Mapping[int, Column]) -> RunChange | None:
    """What a step takes longer bit by bit over all of the run."""
    first = next(iter(ranks.values()))
    # What happens every hundredth step is in few pieces: several make a mean.
    means = np.array([piece.mean(axis=0) for piece in np.array_split(first, LEAST_LEVELS)])
    if (drift(means[:, _FIRST], walls_s(means)) or 0.0) < LIMITS.worth:
        return None
    ends, wide = ({rank: _ends(ranks[rank], parts) for rank in ranks} for parts in (16, 4))
    return _change(ends, wide, first, np.mean)


def _sudden(ranks: Mapping[int, Column], span: tuple[int, int, int]) -> RunChange | None:
    """What a step takes longer from the middle of a span of levels on, beside that before."""
    first = next(iter(ranks.values()))
    steps = [[*first[:, _FIRST], math.inf][place] for place in span]
    parts = {
        rank: np.split(levels, np.searchsorted(levels[:, _FIRST], steps))
        for rank, levels in ranks.items()
    }
    sides = {rank: (p[1], p[2]) for rank, p in parts.items() if len(p[1]) and len(p[2])}
    change = _change(sides, sides, next(iter(sides.values()))[1], np.median)
    return change and msgspec.structs.replace(
        change,
        from_step=int(steps[1]),
        until_step=None if steps[2] == math.inf else int(steps[2]),
    )


def _change(
    sides: Sides, wide: Sides, since: Column, middle: Callable[..., Column]
) -> RunChange | None:
    """The change between two sides; `None` if steps take no longer, or not for long.

    Args:
        sides: What was before and after, of each rank.
        wide: The same for facts, which scatter more than phases do.
        since: The pieces, on the lowest rank, of which any may take longer than before.
        middle: What a phase takes on a side, by its pieces.
    """
    of_ranks = {
        rank: [middle(phases_s(side), axis=0) for side in both] for rank, both in sides.items()
    }
    begins_s, ends_s = (float(each.sum()) for each in next(iter(of_ranks.values())))
    since_s, steps = walls_s(since), float(since[:, _STEADY].sum())
    if ends_s <= begins_s or float(since_s.mean()) * steps < LEAST_LASTS_S:
        return None
    grown = {rank: after - before for rank, (before, after) in of_ranks.items()}
    rank, phase, alone = _cause(grown, ends_s - begins_s)
    early_s, late_s = of_ranks[rank]
    return RunChange(
        begins_s=begins_s,
        ends_s=ends_s,
        lost_s=float((since_s - begins_s).clip(min=0).mean()) * steps,
        phase=phase.label,
        phase_begins_s=float(early_s[phase]),
        phase_ends_s=float(late_s[phase]),
        rank=rank if alone else None,
        alike=_alike(early_s[[*_DEVICE]], late_s[[*_DEVICE]], ends_s - begins_s),
        moved=tuple(_moved(*wide[rank], begins_s, ends_s)),
    )


def _ends(levels: Column, parts: int) -> tuple[Column, Column]:
    """The first and the last of so many equal parts."""
    number = max(1, len(levels) // parts)
    return levels[:number], levels[-number:]


def _cause(grown: Mapping[int, Column], rise_s: float) -> tuple[int, Phase, bool]:
    """The rank, and its phase, that grew most, and whether it hardly did on the other ranks.

    Where ranks wait only if nothing else explains the rise.
    """
    every = np.stack(list(grown.values()))
    waits = np.isin(PHASES, _WAITING) & (len(grown) > 1)
    own = np.where(waits, -np.inf, every)
    if 2 * own.max() < rise_s:
        own = every
    place, phase = np.unravel_index(own.argmax(), own.shape)
    others = np.delete(every[:, phase], place)
    alone = len(others) > 0 and bool(2 * np.median(others) < every[place, phase])
    return list(grown)[place], PHASES[phase], alone


def _alike(early_s: Column, late_s: Column, rise_s: float) -> bool:
    """Whether most of the rise is in these phases, none of which grew twice as much as another."""
    if not (early_s > 0).all() or (late_s - early_s).sum() < LIMITS.mostly * rise_s:
        return False
    growth = late_s / early_s - 1
    return bool(growth.min() >= LIMITS.mostly * growth.max())


def _moved(before: Column, after: Column, before_s: float, after_s: float) -> Sequence[Moved]:
    """Facts whose mean changed by at least half as much as a step that got longer.

    Of the device's memory any growth: the last bit of it is what matters.
    """
    least = dict.fromkeys(FACTS, (after_s / before_s - 1) / 2) | {"device_used_bytes": 0.0}
    sides = [dict(zip(COLUMNS, side.T, strict=True)) for side in (before, after)]
    means = {fact: [_median(side[fact]) for side in sides] for fact in FACTS}
    # Of what was not measured nothing is true.
    moved = {n: m for n, m in means.items() if 0 < m[0] < m[1] >= m[0] * (1 + least[n])}
    if "waited_ns" in moved:
        # A longer step waits longer for a processor whatever made it longer: the same share of it.
        early, late = moved["waited_ns"]
        short_ns, long_ns = (_median(walls_s(side)) * 1e9 for side in (before, after))
        if 2 * (late - early * long_ns / short_ns) < long_ns - short_ns:
            del moved["waited_ns"]
    return [Moved(fact=fact, before=both[0], after=both[1]) for fact, both in moved.items()]


def _median(values: Column) -> float:
    """Of those that were measured; NaN if none was."""
    measured = values[~np.isnan(values)]
    return float(np.median(measured)) if len(measured) else math.nan
