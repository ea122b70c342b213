"""Levels of a run: what a step took in each of up to 1,024 consecutive pieces of it, per rank.

Of steady steps: medians of the step and of its phases, means of phases and of some facts.  Pieces
get longer with the run; of steps that are not read the index of a packed part has the same.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import PHASES
from trainperf.core.steps.block import Column, StepBlock
from trainperf.core.steps.stretches import Stretches


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
)
"""What may grow, or change, together with a step."""

PLACE = ("first", "last", "start_ns", "steady")
MEDIANS = tuple(f"median:{name}" for name in ("wall", *(phase.label for phase in PHASES)))
MEANS = (*(f"mean:{phase.label}" for phase in PHASES), *(f"mean:{fact}" for fact in FACTS))
COLUMNS = (*PLACE, *MEDIANS, *MEANS)

MOST = 1024
LEAST_STEPS = 16
"""Of a piece: a median of fewer is that of single steps."""

_STEADY = COLUMNS.index("steady")


class Levels:
    """The pieces of one rank, in order, by name of a column; NaN where nothing was steady."""

    def __init__(self, matrix: Column) -> None:
        self.matrix = matrix

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, name: str) -> Column:
        return self.matrix[:, COLUMNS.index(name)]

    def select(self, chosen: npt.NDArray[np.bool_]) -> "Levels":
        """Some of them."""
        return Levels(self.matrix[chosen])


class LevelsFold:
    """Takes the steps of all ranks, or of one; a later attempt goes on."""

    def __init__(self, ranks: int) -> None:
        self._rows: list[list[Column]] = [[] for _ in range(ranks)]
        self._steps = LEAST_STEPS

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: a block per rank, empty for one that took no part."""
        for place, block in enumerate(blocks):
            self.observe_rank(place, block)
        while sum(map(len, self._rows[0])) > 2 * MOST:
            self._rows = [[halved(np.concatenate(rows))] if rows else [] for rows in self._rows]
            self._steps *= 2

    def observe_rank(self, place: int, block: StepBlock) -> None:
        """Take the next steps of a rank alone, after those of the first rank."""
        if not len(block):
            return
        rows, pieces = self._rows[place], _pieces(block, self._steps)
        if rows and len(rows[-1]) and rows[-1][-1, 0] // self._steps == pieces[0, 0] // self._steps:
            # A run that is being written is read a few steps at a time.
            whole = halved(np.stack([rows[-1][-1], pieces[0]]))
            rows[-1], pieces = rows[-1][:-1], np.concatenate([whole, pieces[1:]])
        rows.append(pieces)

    def has(self, place: int) -> bool:
        """Whether there are steps of the rank at a place."""
        return bool(self._rows[place])

    def levels(self, place: int, unread: Stretches | None) -> Levels:
        """Those of the rank at a place, with what is known of its *unread* steps."""
        rows = [*self._rows[place], *([] if unread is None else [_of_stretches(unread)])]
        matrix = np.concatenate(rows) if rows else np.empty((0, len(COLUMNS)))
        matrix = matrix[matrix[:, _STEADY] > 0]
        matrix = matrix[np.argsort(matrix[:, 0], kind="stable")]
        while len(matrix) > MOST:
            matrix = halved(matrix)
        return Levels(matrix)


def halved(matrix: Column) -> Column:
    """Two neighbours as one each: means weighted by their steady steps, the last one alone."""
    even = matrix[: len(matrix) // 2 * 2].reshape(-1, 2, matrix.shape[1])
    weights = even[:, :, _STEADY, None]
    with np.errstate(invalid="ignore"):
        present = np.where(np.isnan(even), 0.0, weights)
        joined = (np.nan_to_num(even) * present).sum(axis=1) / present.sum(axis=1)
    joined[:, 0], joined[:, 1] = even[:, 0, 0], even[:, 1, 1]
    joined[:, 2], joined[:, _STEADY] = even[:, 0, 2], weights.sum(axis=1)[:, 0]
    return np.concatenate([joined, matrix[len(even) * 2 :]])


def _pieces(block: StepBlock, steps: int) -> Column:
    """A row per piece of so many steps."""
    number = (block.index // steps).astype(int)
    piece = number - number[0]
    within = (block.index - number * steps).astype(int)
    steady = block.steady() is block or (np.isin(block.index, block.steady().index))
    values = _values(block)
    values[np.logical_not(np.broadcast_to(steady, len(block)))] = np.nan
    cells = np.full((piece[-1] + 1, steps, values.shape[1]), np.nan)
    cells[piece, within] = values
    counts = np.logical_not(np.isnan(cells[:, :, 0])).sum(axis=1)
    rows = np.full((len(cells), len(COLUMNS)), np.nan)
    edges = np.concatenate(([0], np.flatnonzero(np.diff(piece)) + 1))
    lasts = np.concatenate((edges[1:] - 1, [len(block) - 1]))
    present = piece[edges]
    rows[present, 0], rows[present, 1] = block.index[edges], block.index[lasts]
    rows[present, 2], rows[:, _STEADY] = block.start_ns[edges], counts
    wide = 1 + len(PHASES)
    rows[:, 4 : 4 + wide] = _medians(cells[:, :, :wide])
    rows[:, 4 + wide :] = _means(cells[:, :, 1:])
    pieces: Column = rows[present]
    return pieces


def _values(block: StepBlock) -> Column:
    """Step, phases, facts: a column each."""
    facts = [block.fact(name) for name in FACTS]
    missing = np.full(len(block), np.nan)
    columns = [block.wall_ns, *(block.host_ns(phase) for phase in PHASES)]
    return np.column_stack([*columns, *(missing if fact is None else fact for fact in facts)])


def _medians(cells: Column) -> Column:
    """Over the second axis, of those that are not NaN."""
    ordered = np.sort(cells, axis=1)  # NaN come last
    counts = np.logical_not(np.isnan(cells)).sum(axis=1)
    low, high = np.maximum(counts - 1, 0) // 2, np.maximum(counts, 1) // 2
    pick = [np.take_along_axis(ordered, each[:, None], axis=1)[:, 0] for each in (low, high)]
    middle: Column = (pick[0] + pick[1]) / 2
    return middle


def _means(cells: Column) -> Column:
    counts = np.logical_not(np.isnan(cells)).sum(axis=1)
    with np.errstate(invalid="ignore"):
        means: Column = np.nansum(cells, axis=1) / np.where(counts, counts, np.nan)
    return means


def _of_stretches(stretches: Stretches) -> Column:
    absent = np.full(len(stretches), np.nan)
    columns = [stretches[name] if stretches.has(name) else absent for name in COLUMNS]
    return np.column_stack(columns)
