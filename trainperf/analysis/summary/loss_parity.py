"""Does a run still learn what its baseline learned?  Their losses at equal work done.

Equal work is equal effective tokens, else equal samples: the loss after as many *steps* says
nothing where the batches differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.warnings import diverged
from trainperf.core.formatting.units import count, share
from trainperf.core.steps.block import StepBlock


TOLERANCE = 0.02
"""Relative difference of the losses up to which they match; fixed before any run was compared."""

RANGE = 0.2
"""The last part of the work that both have done: what is compared."""

MOST_RANGE = 0.5
"""So much at most where a short run's last part has too few steps: what all begin with says nothing
of what they learn."""

CELLS = 10
"""Pieces of that range: their differences say how much of it is noise."""

LEAST_STEPS = 2 * CELLS
"""Of either run in the range."""

LEAST_LEVEL = 0.1
"""Of the baseline's first losses: a loss that has all but vanished is not divided by."""

Verdict = Literal["same", "differs", "unknown"]
Unit = Literal["effective tokens", "samples"]

_FACTS: dict[Unit, str] = {"effective tokens": "tokens_effective", "samples": "samples"}
_EARLIER: dict[Unit, str] = {"effective tokens": "tokens", "samples": "samples"}
_Column = npt.NDArray[np.float64]


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """A run's loss beside its baseline's."""

    verdict: Verdict
    why: str
    """The numbers, or what they lack, in a clause."""
    unit: Unit | None = None
    since: float | None = None
    """Where the compared range begins, in that unit."""
    work: float | None = None
    """Where it ends."""
    loss: float | None = None
    """Mean over the range."""
    baseline_loss: float | None = None
    difference: float | None = None
    """Of the two, relative to the baseline's; positive where the run's loss is higher."""
    noise: float | None = None
    """Two standard errors of that, from the pieces of the range."""
    tolerance: float = TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """The loss of a run after each step; all ranks together."""

    loss: _Column
    """Mean over ranks; NaN in a step without one."""
    work: dict[Unit, _Column]
    """What was done up to and with each step, earlier fits included; only what is known."""
    diverged: str = ""
    """Since when the loss is no number."""


def parity(run: Run, baseline: Run) -> Parity:
    """Read both and compare them."""
    return compared([curve_of(run)], [curve_of(baseline)])


class LossFold:
    """Collects the losses of a run, and what was trained on, while its steps pass."""

    def __init__(self) -> None:
        self._losses: list[_Column] = []
        self._works: dict[Unit, list[_Column]] = {unit: [] for unit in _FACTS}

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: one block a rank, empty for one that took no part."""
        present = [block for block in blocks if len(block)]
        self._losses.append(_mean([_fact(block, "loss") for block in present]))
        for unit, fact in _FACTS.items():
            self._works[unit].append(np.sum([_fact(block, fact) for block in present], axis=0))

    def curve(self, run: Run, diverged: str) -> LossCurve:
        """What was collected of *run*, whose loss is no number since what *diverged* says."""
        earlier = run.attempts[0][0].info.totals
        # What a restart did again from its checkpoint would count twice.
        units = _FACTS if len(run.attempts) == 1 else {}
        return LossCurve(
            loss=_joined(self._losses),
            work={
                unit: earlier.get(_EARLIER[unit], 0) + np.cumsum(done)
                for unit in units
                if len(done := _joined(self._works[unit])) and bool(np.isfinite(done).all())
            },
            diverged=diverged,
        )


def curve_of(run: Run) -> LossCurve:
    """The losses of a run."""
    replay, fold = Replay(run), LossFold()
    for blocks in replay.blocks():
        fold.observe(blocks)
    return fold.curve(run, diverged(replay))


def compared(
    ours: Sequence[LossCurve], theirs: Sequence[LossCurve], *, tolerance: float = TOLERANCE
) -> Parity:
    """A run's losses beside its baseline's, over the last work that all of them have done.

    Args:
        ours: Repeats of the run.
        theirs: Those of the baseline.
        tolerance: Relative difference up to which they match.
    """
    every = [*ours, *theirs]
    ended = next((curve.diverged for curve in ours if curve.diverged), "")
    if ended and not any(curve.diverged for curve in theirs):
        return Parity(verdict="differs", why=f"the loss is {ended}; the baseline's is not")
    unit = next((one for one in _FACTS if all(one in curve.work for curve in every)), None)
    if unit is None:
        return Parity(
            verdict="unknown",
            why="tokens or samples were not counted in both runs, or one of them was restarted",
        )
    start = max(float(curve.work[unit][0]) for curve in every)
    end = min(float(curve.work[unit][-1]) for curve in every)
    since = min(end - RANGE * (end - start), *(_enough(curve, unit, end) for curve in every))
    since = max(since, end - MOST_RANGE * (end - start))
    edges = _edges([_works(curve, unit, since, end) for curve in every], end)
    pieces = [
        [_cells(curve.loss, curve.work[unit], edges) for curve in side] for side in (ours, theirs)
    ]
    known = [[one for one in side if one is not None] for side in pieces]
    if end <= start or sum(map(len, known)) < len(every):
        said = f"fewer than {LEAST_STEPS} steps with a loss in the {unit} that both have done"
        if len(edges):
            said = f"the steps of the runs are too unlike in {unit} to be set side by side"
        return Parity(verdict="unknown", why=said, unit=unit)
    found = _Levels(ours=np.stack(known[0]), theirs=np.stack(known[1]), first=_level(theirs[0]))
    return _judged(found, unit, (since, end), tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Levels:
    """Losses piece by piece, one row a repeat."""

    ours: _Column
    theirs: _Column
    first: float
    """At which loss the baseline began."""

    def noise(self) -> float:
        """Two standard errors of the difference: from its pieces, and from the repeats."""
        apart = self.ours.mean(axis=0) - self.theirs.mean(axis=0)
        within = float(apart.var(ddof=1)) / len(apart)
        between = sum(
            float(side.mean(axis=1).var(ddof=1)) / len(side)
            for side in (self.ours, self.theirs)
            if len(side) > 1
        )
        return 2 * math.sqrt(max(within, between))


def _judged(
    found: _Levels, unit: Unit, compared_range: tuple[float, float], tolerance: float
) -> Parity:
    since, end = compared_range
    ours, theirs = float(found.ours.mean()), float(found.theirs.mean())
    level = max(abs(theirs), LEAST_LEVEL * found.first) or 1.0
    difference, noise = (ours - theirs) / level, found.noise() / level
    losses = f"loss {ours:.4g} and {theirs:.4g} after {count(round(end))} {unit}"
    said = f"{losses}: {share(abs(difference))} apart, noise {share(noise)}"
    verdict: Verdict = "same" if abs(difference) <= tolerance else "differs"
    if noise > (2 * tolerance if verdict == "same" else abs(difference)):
        verdict = "unknown"
    return Parity(
        verdict=verdict,
        why=said,
        unit=unit,
        since=since,
        work=end,
        loss=ours,
        baseline_loss=theirs,
        difference=difference,
        noise=noise,
        tolerance=tolerance,
    )


def _enough(curve: LossCurve, unit: Unit, end: float) -> float:
    """Since when a run has `LEAST_STEPS` losses up to *end*; the end if it never had."""
    work = curve.work[unit]
    known = work[np.isfinite(curve.loss) & (work <= end)]
    return float(known[-LEAST_STEPS]) if len(known) >= LEAST_STEPS else end


def _works(curve: LossCurve, unit: Unit, since: float, end: float) -> _Column:
    """What was done up to each step of a range that has a loss."""
    work = curve.work[unit]
    return work[np.isfinite(curve.loss) & (work >= since) & (work <= end)]


def _edges(works: Sequence[_Column], end: float) -> _Column:
    """Of pieces with as many steps each, of the run that has fewest; none if it has too few."""
    fewest = min(works, key=len)
    if len(fewest) < LEAST_STEPS:
        return np.empty(0)
    firsts = [part[0] for part in np.array_split(fewest, CELLS)]
    return np.array([*firsts, end], dtype=np.float64)


def _cells(loss: _Column, work: _Column, edges: _Column) -> _Column | None:
    """Mean loss in each piece of the range; `None` where one of them has no step."""
    if not len(edges):
        return None
    known = np.isfinite(loss) & (work >= edges[0]) & (work <= edges[-1])
    places = np.clip(np.searchsorted(edges, work[known], side="right") - 1, 0, len(edges) - 2)
    numbers = np.bincount(places, minlength=len(edges) - 1)
    if not numbers.all():
        return None
    sums = np.bincount(places, weights=loss[known], minlength=len(edges) - 1)
    return np.asarray(sums / numbers, dtype=np.float64)


def _level(baseline: LossCurve) -> float:
    known = baseline.loss[np.isfinite(baseline.loss)][:CELLS]
    return abs(float(known.mean())) if len(known) else 0.0


def _fact(block: StepBlock, name: str) -> _Column:
    found = block.fact(name)
    return np.full(len(block), np.nan) if found is None else found


def _mean(columns: list[_Column]) -> _Column:
    """Over the ranks that have a value."""
    stacked = np.stack(columns)
    known = np.isfinite(stacked)
    numbers = known.sum(axis=0)
    total = np.where(known, stacked, 0.0).sum(axis=0)
    return np.where(numbers > 0, total / np.maximum(numbers, 1), np.nan)


def _joined(parts: list[_Column]) -> _Column:
    return np.concatenate(parts) if parts else np.empty(0)
