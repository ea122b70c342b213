"""Changes of a run while it goes on: new levels, slow drifts and pauses that grow.

Levels are what a step took in each of up to 1,024 consecutive pieces of the run, per rank: of
steady steps medians of the step and of its phases, means of phases and of some facts.  Pieces get
longer with the run; of steps that are not read the index of a packed part has the same.

Changes are told from the steps of the lowest rank: ranks that wait for each other have the same.
Of several ranks the cause is looked for on the one whose own work changed most, because the others
wait for it.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from trainperf.analysis.run.journal import NOT_RECURRING, Journal
from trainperf.analysis.summary.schema import GrowingPause, LongTerm, Moved, NewLevel, SlowDrift
from trainperf.core.findings import LIMITS
from trainperf.core.phases import DISQUALIFYING, PHASES, Phase
from trainperf.core.stats.changes import LEAST_CHANGE, LEAST_LEVELS, change_points, drift
from trainperf.core.steps.block import Column, StepBlock
from trainperf.core.steps.stretches import Stretches


LEAST_LASTS_S = 30.0
"""How long a level lasts, or a drift goes on, that is told of."""

GROWN = 1.5
"""Times as long as at first are the pauses, or a hook, of the last quarter, if they grow."""

ALIKE = 0.3
"""Phases that grow by factors no further apart grow alike."""

MOST_LEVELS = 1024
LEAST_STEPS = 16
"""Of a piece, and pauses: a median of fewer is that of single ones."""

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

_STEADY = COLUMNS.index("steady")
_WAITING = (Phase.BACKWARD, Phase.LOOP)
"""Where a rank waits for others."""
_DEVICE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


class Levels:
    """The pieces of one rank, in order, by name of a column; NaN where nothing was steady."""

    def __init__(self, matrix: Column) -> None:
        self.matrix = matrix

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, name: str) -> Column:
        return self.matrix[:, COLUMNS.index(name)]

    def between(self, first: int, last: int) -> "Levels":
        """Those that begin with one of these steps."""
        return Levels(self.matrix[(self["first"] >= first) & (self["first"] <= last)])

    def wall_s(self) -> float:
        """Median step."""
        return float(np.median(self["median:wall"])) / 1e9

    def phases_s(self) -> Column:
        """Median of each phase."""
        first = COLUMNS.index(MEDIANS[1])
        medians: Column = np.median(self.matrix[:, first : first + len(PHASES)], axis=0) / 1e9
        return medians


class LevelsFold:
    """Takes the steps of all ranks, or of one; a later attempt goes on."""

    def __init__(self, ranks: int) -> None:
        self._rows: list[list[Column]] = [[] for _ in range(ranks)]
        self._steps = LEAST_STEPS

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: a block per rank, empty for one that took no part."""
        for place, block in enumerate(blocks):
            self.observe_rank(place, block)
        while sum(map(len, self._rows[0])) > 2 * MOST_LEVELS:
            self._rows = [[halved(np.concatenate(rows))] if rows else [] for rows in self._rows]
            self._steps *= 2

    def observe_rank(self, place: int, block: StepBlock) -> None:
        """Take the next steps of a rank alone, after those of the first rank."""
        if not len(block):
            return
        rows, pieces = self._rows[place], _pieces(block, self._steps)
        if rows and len(rows[-1]) and rows[-1][-1, 0] // self._steps == pieces[0, 0] // self._steps:
            # A run that is being written is read a few steps at a time.
            pieces[:1] = halved(np.stack([rows[-1][-1], pieces[0]]))
            rows[-1] = rows[-1][:-1]
        rows.append(pieces)

    def has(self, place: int) -> bool:
        """Whether there are steps of the rank at a place."""
        return bool(self._rows[place])

    def levels(self, place: int, unread: Stretches | None) -> Levels:
        """Those of the rank at a place, with what is known of its *unread* steps."""
        rows = [np.empty((0, len(COLUMNS))), *self._rows[place]]
        if unread is not None:
            absent = np.full(len(unread), np.nan)
            columns = [unread[name] if unread.has(name) else absent for name in COLUMNS]
            rows.append(np.column_stack(columns))
        matrix = np.concatenate(rows)
        matrix = matrix[matrix[:, _STEADY] > 0]
        matrix = matrix[np.argsort(matrix[:, 0], kind="stable")]
        while len(matrix) > MOST_LEVELS:
            matrix = halved(matrix)
        return Levels(matrix)


def halved(matrix: Column) -> Column:
    """Two neighbours as one each: means weighted by their steady steps, the last one alone."""
    even = matrix[: len(matrix) // 2 * 2].reshape(-1, 2, matrix.shape[1])
    weights = even[:, :, _STEADY, None]
    present = np.where(np.isnan(even), 0.0, weights)
    with np.errstate(invalid="ignore"):
        joined = (np.nan_to_num(even) * present).sum(axis=1) / present.sum(axis=1)
    joined[:, [0, 2]], joined[:, 1] = even[:, 0, [0, 2]], even[:, 1, 1]
    joined[:, _STEADY] = weights.sum(axis=1)[:, 0]
    return np.concatenate([joined, matrix[len(even) * 2 :]])


def _pieces(block: StepBlock, steps: int) -> Column:
    """A row per piece of so many steps."""
    number = (block.index // steps).astype(int)
    facts = [block.fact(name) for name in FACTS]
    missing = np.full(len(block), np.nan)
    host_ns = [block.host_ns(phase) for phase in PHASES]
    values = np.column_stack(
        [block.wall_ns, *host_ns, *(missing if fact is None else fact for fact in facts)]
    )
    values[(block.tags & DISQUALIFYING) != 0] = np.nan
    cells = np.full((number[-1] - number[0] + 1, steps, values.shape[1]), np.nan)
    cells[number - number[0], (block.index - number * steps).astype(int)] = values
    firsts = np.flatnonzero(np.diff(number, prepend=-1))
    cells = cells[number[firsts] - number[0]]
    counts = (~np.isnan(cells)).sum(axis=1)
    ordered = np.sort(cells[:, :, : 1 + len(PHASES)], axis=1)  # NaN come last
    counted = counts[:, : 1 + len(PHASES)]
    low, high = np.maximum(counted - 1, 0) // 2, np.maximum(counted, 1) // 2
    middles = [np.take_along_axis(ordered, each[:, None], axis=1)[:, 0] for each in (low, high)]
    with np.errstate(invalid="ignore"):
        means = np.nansum(cells, axis=1) / np.where(counts, counts, np.nan)
    lasts = block.index[np.append(firsts[1:], len(block)) - 1]
    place = [block.index[firsts], lasts, block.start_ns[firsts], counts[:, 0]]
    return np.column_stack([*place, sum(middles) / 2, means[:, 1:]])


def long_term(ranks: Mapping[int, Levels], journals: Mapping[int, Journal]) -> LongTerm:
    """Of the levels of some ranks, the lowest first, and their journals."""
    lowest, first = next(iter(ranks.items()))
    pauses = tuple(_growing_pauses(journals[lowest]))
    if len(first) < LEAST_LEVELS:
        return LongTerm(pauses=pauses)
    gradual = _drift({rank: each for rank, each in ranks.items() if len(each)}, journals)
    if gradual is not None:
        # What rises from nearly nothing begins with jumps that are large for its level.
        return LongTerm(drift=gradual, pauses=pauses)
    edges = [0, *change_points(first["median:wall"]), len(first)]
    spans = zip(edges, edges[1:], edges[2:], strict=False)
    levels = (_level(ranks, span) for span in spans)
    return LongTerm(levels=tuple(level for level in levels if level is not None), pauses=pauses)


def _level(ranks: Mapping[int, Levels], span: tuple[int, int, int]) -> NewLevel | None:
    """The level from the middle of the span on, beside that before; `None` if it is no longer."""
    lowest, first = next(iter(ranks.items()))
    starts = [int(first["first"][place]) for place in span[:2]]
    last = int(first["last"][span[2] - 1])
    sides = {
        rank: (each.between(starts[0], starts[1] - 1), each.between(starts[1], last))
        for rank, each in ranks.items()
    }
    sides = {rank: both for rank, both in sides.items() if all(map(len, both))}
    before_s, after_s = (side.wall_s() for side in sides[lowest])
    steps = float(sides[lowest][1]["steady"].sum())
    if after_s <= before_s or after_s * steps < LEAST_LASTS_S:
        return None
    grown = {rank: after.phases_s() - before.phases_s() for rank, (before, after) in sides.items()}
    rank, phase, alone = _cause(grown, after_s - before_s)
    return NewLevel(
        from_step=starts[1],
        until_step=None if span[2] == len(first) else int(first["first"][span[2]]),
        before_s=before_s,
        after_s=after_s,
        lost_s=(after_s - before_s) * steps,
        phase=phase.label,
        phase_s=float(grown[rank][phase]),
        rank=rank if alone else None,
        alike=_alike(*sides[rank]),
        moved=tuple(_moved(*sides[rank], before_s, after_s)),
    )


def _cause(grown: Mapping[int, Column], rise_s: float) -> tuple[int, Phase, bool]:
    """The rank, and its phase, that grew most, and whether it hardly did on the other ranks.

    Where ranks wait only if nothing else explains the rise.
    """
    every = np.stack(list(grown.values()))
    own = every.copy()
    if len(grown) > 1:
        own[:, _WAITING] = -np.inf
    if 2 * own.max() < rise_s:
        own = every
    place, phase = np.unravel_index(own.argmax(), own.shape)
    others = np.delete(every[:, phase], place)
    alone = len(others) > 0 and bool(2 * np.median(others) < every[place, phase])
    return list(grown)[place], PHASES[phase], alone


def _alike(before: Levels, after: Levels) -> bool:
    """Whether forward, backward and optimizer grew by like factors."""
    early, late = before.phases_s()[[*_DEVICE]], after.phases_s()[[*_DEVICE]]
    if not (early > 0).all():
        return False
    growth = late / early - 1
    return bool(2 * growth.min() >= LEAST_CHANGE and np.ptp(growth) <= ALIKE * growth.max())


def _moved(before: Levels, after: Levels, before_s: float, after_s: float) -> Sequence[Moved]:
    """Facts whose mean changed by at least half as much as a step that got longer."""
    moved = []
    for fact in FACTS:
        early, late = (_median(side[f"mean:{fact}"]) for side in (before, after))
        if early is None or late is None or early <= 0:
            continue
        along = 2 * (late / early - 1) >= after_s / before_s - 1
        # A longer step waits longer for a processor whatever made it longer.
        if fact == "waited_ns":
            along = along and 2 * (late - early) >= (after_s - before_s) * 1e9
        if along:
            moved.append(Moved(fact=fact, before=early, after=late))
    return moved


def _median(values: Column) -> float | None:
    measured = values[~np.isnan(values)]
    return float(np.median(measured)) if len(measured) else None


def _drift(ranks: Mapping[int, Levels], journals: Mapping[int, Journal]) -> SlowDrift | None:
    lowest = next(iter(ranks))
    courses = {rank: _course(levels) for rank, levels in ranks.items()}
    at, phases_s = courses[lowest]
    walls_s = phases_s.sum(axis=1)
    line = drift(at, walls_s)
    if line is None or line.begins <= 0 or line.rise < LIMITS.worth * line.begins:
        return None
    lines = {rank: [drift(at, phase) for phase in of.T] for rank, (at, of) in courses.items()}
    grown = {
        rank: np.array([each.ends - each.begins if each else 0.0 for each in of])
        for rank, of in lines.items()
    }
    rank, phase, alone = _cause(grown, line.ends - line.begins)
    steps, levels, growing = float(ranks[lowest]["steady"].sum()), ranks[rank], lines[rank][phase]
    if growing is None or steps * float(walls_s.mean()) < LEAST_LASTS_S:
        return None
    quarter = max(1, len(levels) // 4)
    ends = Levels(levels.matrix[:quarter]), Levels(levels.matrix[-quarter:])
    hook, hook_begins_s, hook_ends_s = _growing_hook(journals[rank])
    return SlowDrift(
        steps=journals[lowest].steps,
        begins_s=line.begins,
        ends_s=line.ends,
        lost_s=float((walls_s - line.begins).clip(min=0).mean()) * steps,
        phase=phase.label,
        phase_begins_s=growing.begins,
        phase_ends_s=growing.ends,
        rank=rank if alone else None,
        hook=hook,
        hook_begins_s=hook_begins_s,
        hook_ends_s=hook_ends_s,
        alike=_alike(*ends),
        moved=tuple(_moved(*ends, line.begins, line.ends)),
    )


def _course(levels: Levels) -> tuple[Column, Column]:
    """Where each of some equal parts of a run begins on average, and the mean of each phase in it.

    What happens every hundredth step is in few pieces: several make a mean.
    """
    first = COLUMNS.index(MEANS[0])
    parts = np.array_split(levels.matrix, min(LEAST_LEVELS, len(levels)))
    means = np.array([part.mean(axis=0) for part in parts])
    return means[:, 0], means[:, first : first + len(PHASES)] / 1e9


def _growing_hook(journal: Journal) -> tuple[str, float, float]:
    """The hook that takes longer in the last quarter of the steps than in the first, and both."""
    looks, none = journal.hooks, ("", 0.0, 0.0)
    if len(looks) < 4 or looks[-1][0] <= looks[0][0]:
        return none
    quarter = max(1, len(looks) // 4)
    grown = []
    for hook in looks[-1][1]:
        begins_s, ends_s = (
            (more.get(hook, 0) - spent.get(hook, 0)) / 1e9 / max(1, later - step)
            for (step, spent), (later, more) in (
                (looks[0], looks[quarter]),
                (looks[-1 - quarter], looks[-1]),
            )
        )
        grown.append((ends_s - begins_s, hook, begins_s, ends_s))
    rise_s, name, begins_s, ends_s = max(grown, default=(0.0, *none))
    return (name, begins_s, ends_s) if rise_s > 0 and ends_s >= GROWN * begins_s else none


def _growing_pauses(journal: Journal) -> Sequence[GrowingPause]:
    growing = []
    for gap, pauses in journal.pauses.items():
        if gap in NOT_RECURRING or len(pauses) < LEAST_STEPS:
            continue
        lengths = np.array([spent_ns for _, spent_ns in pauses[-MOST_LEVELS:]]) / 1e9
        quarter = len(lengths) // 4
        begins_s, ends_s = (
            float(np.median(some)) for some in (lengths[:quarter], lengths[-quarter:])
        )
        earlier, later = np.triu_indices(len(lengths), 1)
        # By chance half of all pairs are longer later.
        rising = (lengths[later] > lengths[earlier]).mean() >= LIMITS.regular
        if begins_s > 0 and ends_s >= GROWN * begins_s and rising:
            growing.append(
                GrowingPause(
                    gap=gap,
                    number=len(pauses),
                    begins_s=begins_s,
                    ends_s=ends_s,
                    lost_s=float((lengths - begins_s).clip(min=0).sum()),
                )
            )
    return growing
