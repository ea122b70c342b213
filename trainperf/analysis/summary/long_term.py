"""Changes of a run while it goes on: new levels, slow drifts and pauses that grow.

Told from the steps of the lowest rank: ranks that wait for each other have the same.  Of several
ranks the cause is looked for on the one whose own work changed most, because the others wait for
it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from trainperf.analysis.run.journal import NOT_RECURRING, Journal
from trainperf.analysis.summary.levels import FACTS, Levels
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.changes import LEAST_CHANGE, LEAST_LEVELS, Drift, change_points, drift
from trainperf.core.steps.block import Column


LEAST_LASTS_S = 30.0
"""How long a level lasts, or a drift goes on, that is told of."""

LEAST_RISE = 0.05
"""Of the step, that it is longer at the end of a drift."""

LEAST_PAUSES = 12
GROWN = 1.5
"""Times as long as the first quarter of the pauses are those of the last."""
RISING_PAIRS = 0.8
"""Of all pairs of pauses, how many must be longer later; 0.5 by chance."""
MOST_PAUSES = 2000
"""The latest ones are compared."""

MOVES = 0.5
"""Of the relative change of a step: what changes by so much moves with it."""

ALIKE = 0.3
"""Phases that grow by factors no further apart grow alike."""

_WAITING = (Phase.BACKWARD, Phase.LOOP)
"""Where a rank waits for others."""
_DEVICE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that changed with the steps: its mean before and after, or at both ends."""

    fact: str
    before: float
    after: float


class NewLevel(msgspec.Struct, frozen=True, kw_only=True):
    """From a step on, steps take longer."""

    from_step: int
    until_step: int | None
    """The first that does no longer; `None` if it lasts to the end."""
    before_s: float
    after_s: float
    """Medians of steady steps."""
    lost_s: float
    """What all these steps take longer together."""
    phase: str
    phase_s: float
    """What the phase takes longer in that rank."""
    rank: int | None
    """The rank whose phase that is; `None` if it is so on all, or there is one."""
    alike: bool
    """Whether forward, backward and optimizer grew by like factors: the machine, not the work."""
    moved: tuple[Moved, ...] = ()


class SlowDrift(msgspec.Struct, frozen=True, kw_only=True):
    """Steps get longer bit by bit, over all of the run."""

    steps: int
    begins_s: float
    ends_s: float
    """Mean step in the first sixteenth of the run, and in the last."""
    lost_s: float
    """What all steps take beyond those at first."""
    phase: str
    phase_begins_s: float
    phase_ends_s: float
    """Of the phase in that rank."""
    rank: int | None = None
    """The rank whose phase that is; `None` if it is so on all, or there is one."""
    hook: str = ""
    """The user's hook whose time grows most; empty where none does."""
    hook_begins_s: float = 0.0
    hook_ends_s: float = 0.0
    alike: bool = False
    """As in `NewLevel`."""
    moved: tuple[Moved, ...] = ()


class GrowingPause(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses of one kind that get longer."""

    gap: str
    number: int
    begins_s: float
    ends_s: float
    lost_s: float


class LongTerm(msgspec.Struct, frozen=True, kw_only=True):
    """All that; nothing where a run went on as it began."""

    levels: tuple[NewLevel, ...] = ()
    drift: SlowDrift | None = None
    pauses: tuple[GrowingPause, ...] = ()


def long_term(ranks: Mapping[int, Levels], journals: Mapping[int, Journal]) -> LongTerm:
    """Of the levels of some ranks, the lowest first, and their journals."""
    lowest = next(iter(ranks))
    first = ranks[lowest]
    pauses = _growing_pauses(journals[lowest])
    if len(first) < LEAST_LEVELS:
        return LongTerm(pauses=pauses)
    gradual = _drift({rank: each for rank, each in ranks.items() if len(each)}, journals)
    if gradual is not None:
        # What rises from nearly nothing begins with jumps that are large for its level.
        return LongTerm(drift=gradual, pauses=pauses)
    levels = tuple(_levels(ranks, change_points(first["median:wall"])))
    return LongTerm(levels=levels, pauses=pauses)


def _levels(ranks: Mapping[int, Levels], places: Sequence[int]) -> list[NewLevel]:
    first = next(iter(ranks.values()))
    edges = [0, *places, len(first)]
    levels: list[NewLevel] = []
    for begin, place, end in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = first["median:wall"][begin:place], first["median:wall"][place:end]
        rise_s = float(np.median(after) - np.median(before)) / 1e9
        steps = float(first["steady"][place:end].sum())
        lasts_s = float(np.median(after)) / 1e9 * steps
        if rise_s <= 0 or lasts_s < LEAST_LASTS_S:
            continue
        level = _level(ranks, (begin, place, end), rise_s)
        levels.append(msgspec.structs.replace(level, lost_s=rise_s * steps))
    return levels


def _level(ranks: Mapping[int, Levels], span: tuple[int, int, int], rise_s: float) -> NewLevel:
    begin, place, end = span
    first = next(iter(ranks.values()))
    step, last = int(first["first"][place]), int(first["last"][end - 1])
    since = int(first["first"][begin])
    sides = {
        rank: (
            levels.select((levels["first"] >= since) & (levels["first"] < step)),
            levels.select((levels["first"] >= step) & (levels["first"] <= last)),
        )
        for rank, levels in ranks.items()
    }
    sides = {rank: both for rank, both in sides.items() if all(map(len, both))}
    rank, phase, phase_s = _cause(sides, rise_s)
    before, after = sides[rank]
    before_s, after_s = (float(np.median(each["median:wall"])) / 1e9 for each in sides[min(sides)])
    return NewLevel(
        from_step=step,
        until_step=None if end == len(first) else int(first["first"][end]),
        before_s=before_s,
        after_s=after_s,
        lost_s=0.0,
        phase=phase.label,
        phase_s=phase_s,
        rank=rank if _alone(sides, rank, phase) else None,
        alike=_alike(before, after),
        moved=_moved(before, after, (before_s, after_s)),
    )


def _cause(sides: Mapping[int, tuple[Levels, Levels]], rise_s: float) -> tuple[int, Phase, float]:
    """The rank, and its phase, that grew most; where ranks wait only if nothing else explains."""
    grown = {
        (rank, phase): _median(after, phase) - _median(before, phase)
        for rank, (before, after) in sides.items()
        for phase in PHASES
    }
    chosen = _largest(grown, rise_s, several=len(sides) > 1)
    return (*chosen, grown[chosen])


def _largest(
    grown: Mapping[tuple[int, Phase], float], rise_s: float, *, several: bool
) -> tuple[int, Phase]:
    """Rank and phase that grew most; where ranks wait only if nothing else explains the rise."""
    own = {key: s for key, s in grown.items() if not several or key[1] not in _WAITING}
    chosen = max(own, key=lambda key: own[key], default=None)
    if chosen is None or own[chosen] < rise_s / 2:
        chosen = max(grown, key=lambda key: grown[key])
    return chosen


def _alone(sides: Mapping[int, tuple[Levels, Levels]], rank: int, phase: Phase) -> bool:
    """Whether the phase grew on that rank and hardly on the others."""
    return _stands_out(
        {
            of: _median(after, phase) - _median(before, phase)
            for of, (before, after) in sides.items()
        },
        rank,
    )


def _stands_out(grown: Mapping[int, float], rank: int) -> bool:
    """Whether it grew on that rank and hardly on the others."""
    others = [s for of, s in grown.items() if of != rank]
    return bool(others) and float(np.median(others)) < grown[rank] / 2


def _median(levels: Levels, phase: Phase) -> float:
    return float(np.median(levels[f"median:{phase.label}"])) / 1e9


def _alike(before: Levels, after: Levels) -> bool:
    pairs = [(_median(before, phase), _median(after, phase)) for phase in _DEVICE]
    growth = [late / early - 1 for early, late in pairs if early > 0]
    if len(growth) < len(_DEVICE) or min(growth) < LEAST_CHANGE / 2:
        return False
    return max(growth) - min(growth) <= ALIKE * max(growth)


def _moved(before: Levels, after: Levels, steps_s: tuple[float, float]) -> tuple[Moved, ...]:
    """Facts whose mean changed along with a step from the one length to the other."""
    moved = []
    early_s, late_s = steps_s
    for fact in FACTS:
        early, late = _mean(before[f"mean:{fact}"]), _mean(after[f"mean:{fact}"])
        if early is None or late is None or early <= 0:
            continue
        along = late / early - 1 >= MOVES * (late_s / early_s - 1)
        # A longer step waits longer for a processor whatever made it longer.
        if fact == "waited_ns":
            along = along and late - early >= MOVES * (late_s - early_s) * 1e9
        if along:
            moved.append(Moved(fact=fact, before=early, after=late))
    return tuple(moved)


def _mean(values: Column) -> float | None:
    measured = values[np.logical_not(np.isnan(values))]
    return float(np.median(measured)) if len(measured) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """A rank's phases over the run: a mean for each of some equal parts of it."""

    at: Column
    phases: Mapping[Phase, Column]

    @classmethod
    def of(cls, levels: Levels) -> "_Course":
        # What happens every hundredth step is in few pieces: several make a mean.
        parts = np.array_split(np.arange(len(levels)), LEAST_LEVELS)
        parts = [part for part in parts if len(part)]
        return cls(
            at=np.array([levels["first"][part].mean() for part in parts]),
            phases={
                phase: np.array([levels[f"mean:{phase.label}"][part].mean() for part in parts])
                / 1e9
                for phase in PHASES
            },
        )

    def lines(self) -> dict[Phase, Drift]:
        """Phases that drift."""
        lines = {phase: drift(self.at, values) for phase, values in self.phases.items()}
        return {phase: line for phase, line in lines.items() if line is not None}


def _drift(ranks: Mapping[int, Levels], journals: Mapping[int, Journal]) -> SlowDrift | None:
    lowest = next(iter(ranks))
    courses = {rank: _Course.of(levels) for rank, levels in ranks.items()}
    walls: Column = np.sum([*courses[lowest].phases.values()], axis=0)
    line = drift(courses[lowest].at, walls)
    if line is None or line.begins <= 0 or line.rise < LEAST_RISE * line.begins:
        return None
    steps = float(ranks[lowest]["steady"].sum())
    lines = {rank: course.lines() for rank, course in courses.items()}
    grown = {
        (rank, phase): each.ends - each.begins
        for rank, of in lines.items()
        for phase, each in of.items()
    }
    if not grown or steps * float(walls.mean()) < LEAST_LASTS_S:
        return None
    rank, phase = _largest(grown, line.ends - line.begins, several=len(ranks) > 1)
    of_all = {of: grown.get((of, phase), 0.0) for of in ranks}
    levels = ranks[rank]
    quarter = max(1, len(levels) // 4)
    ends = Levels(levels.matrix[:quarter]), Levels(levels.matrix[-quarter:])
    hook, hook_begins_s, hook_ends_s = _growing_hook(journals[rank])
    return SlowDrift(
        steps=journals[lowest].steps,
        begins_s=line.begins,
        ends_s=line.ends,
        lost_s=float((walls - line.begins).clip(min=0).mean()) * steps,
        phase=phase.label,
        phase_begins_s=lines[rank][phase].begins,
        phase_ends_s=lines[rank][phase].ends,
        rank=rank if _stands_out(of_all, rank) else None,
        hook=hook,
        hook_begins_s=hook_begins_s,
        hook_ends_s=hook_ends_s,
        alike=_alike(*ends),
        moved=_moved(*ends, (line.begins, line.ends)),
    )


def _growing_hook(journal: Journal) -> tuple[str, float, float]:
    """The hook that takes longer in the last quarter of the steps than in the first, and both."""
    looks = journal.hooks
    if len(looks) < 4 or looks[-1][0] <= looks[0][0]:
        return "", 0.0, 0.0
    quarter = max(1, len(looks) // 4)
    grown = []
    for hook in looks[-1][1]:
        rates = []
        for (step, spent), (later, more) in (
            (looks[0], looks[quarter]),
            (looks[-1 - quarter], looks[-1]),
        ):
            rates.append((more.get(hook, 0) - spent.get(hook, 0)) / 1e9 / max(1, later - step))
        grown.append((rates[1] - rates[0], hook, rates[0], rates[1]))
    rise_s, hook, begins_s, ends_s = max(grown, default=(0.0, "", 0.0, 0.0))
    return (hook, begins_s, ends_s) if rise_s > 0 and ends_s >= GROWN * begins_s else ("", 0.0, 0.0)


def _growing_pauses(journal: Journal) -> tuple[GrowingPause, ...]:
    growing = []
    for gap, pauses in journal.pauses.items():
        if gap in NOT_RECURRING or len(pauses) < LEAST_PAUSES:
            continue
        lengths = np.array([spent_ns for _, spent_ns in pauses[-MOST_PAUSES:]]) / 1e9
        quarter = len(lengths) // 4
        begins, ends = float(np.median(lengths[:quarter])), float(np.median(lengths[-quarter:]))
        earlier, later = np.triu_indices(len(lengths), 1)
        rising = float((lengths[later] > lengths[earlier]).mean())
        if begins > 0 and ends >= GROWN * begins and rising >= RISING_PAIRS:
            lost_s = float((lengths - begins).clip(min=0).sum())
            growing.append(
                GrowingPause(
                    gap=gap, number=len(pauses), begins_s=begins, ends_s=ends, lost_s=lost_s
                )
            )
    return tuple(growing)
