"""Loss parity: whether a run learns what its baseline learned, by their losses at equal work.

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
from scipy.special import stdtrit

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.run_facts import diverged
from trainperf.core.formatting.units import count, share


TOLERANCE = 0.02
"""Relative difference of the losses up to which they match; fixed before any run was compared."""

RANGE = 0.2
"""Share of the work that both have done which is compared, the last one."""

MOST_RANGE = 0.5
"""Largest share, where the last part of a short run has too few steps: early losses do not show
what a run learns."""

CELLS = 10
"""Pieces of that range; how their differences vary is the noise."""

LEAST_STEPS = 2 * CELLS
"""Fewest steps of either run in the range."""

LEARNED = 0.1
"""Share of what was learned, from the first losses down to the lower level, up to which two single
runs of unlike seeds may differ by chance: their own scatter does not show how much runs do."""

SURE = 1.5
"""Times the noise that losses which differ are apart: a 99 % interval, about, since such a loss
overrules any gain, and one training in twenty must not be stopped by chance."""

LEAST_LEVEL = 0.1
"""Share of the baseline's first losses that is divided by at least: never by a loss near 0."""

NO_LOSS = "no loss was recorded; a loop of your own gives it to LoopMonitor.end_step(loss)"
"""Of a loop that is measured from outside, unless its model returns the loss."""

Verdict = Literal["same", "differs", "unknown"]
Unit = Literal["effective tokens", "samples"]

_FACTS: dict[Unit, str] = {"effective tokens": "tokens_effective", "samples": "samples"}
_EARLIER: dict[Unit, str] = {"effective tokens": "tokens", "samples": "samples"}
_Column = npt.NDArray[np.float64]


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """A run's loss compared with its baseline's."""

    verdict: Verdict
    why: str
    """The numbers, or what is missing, in a clause."""
    unit: Unit | None = None
    since: float | None = None
    """Where the compared range begins, in that unit."""
    work: float | None = None
    """Where it ends."""
    loss: float | None = None
    """Mean over the range."""
    baseline_loss: float | None = None
    difference: float | None = None
    """Relative to the baseline's loss; positive where the run's loss is higher."""
    noise: float | None = None
    """Half of its 95 % interval, from the pieces of the range and from the repeats."""
    tolerance: float = TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """The loss of a run after each step; all ranks together."""

    loss: _Column
    """Mean over ranks; NaN in a step without one."""
    work: dict[Unit, _Column]
    """Work done up to and with each step, earlier fits included; units not counted are absent."""
    diverged: str = ""
    """Since when the loss is NaN or infinite, in words; empty if it is not."""
    seed: object = None
    """Of the random generators as the fit began; two that are not known count as one."""


def parity(run: Run, baseline: Run) -> Parity:
    """Read two runs and compare their losses."""
    return compare_losses([curve_of(run)], [curve_of(baseline)])


class LossFold:
    """The losses of a run and the work done, collected step by step."""

    def __init__(self) -> None:
        self._losses: list[_Column] = []
        self._works: dict[Unit, list[_Column]] = {unit: [] for unit in _FACTS}

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of all ranks."""
        self._losses.append(job.mean_of_those_having("loss"))
        for unit, fact in _FACTS.items():
            self._works[unit].append(job.total(fact))

    def curve(self, run: Run, diverged: str) -> LossCurve:
        """The curve of *run*; *diverged* says since when its loss is not finite."""
        earlier = run.attempts[0][0].info.totals
        # Steps that a restart repeats from its checkpoint would count twice.
        units = _FACTS if len(run.attempts) == 1 else {}
        return LossCurve(
            loss=_joined(self._losses),
            work={
                unit: earlier.get(_EARLIER[unit], 0) + np.cumsum(done)
                for unit in units
                if len(done := _joined(self._works[unit])) and bool(np.isfinite(done).all())
            },
            diverged=diverged,
            seed=run.attempts[0][0].info.config.get("seed"),
        )


def curve_of(run: Run) -> LossCurve:
    """The losses of a run."""
    replay, fold = Replay(run), LossFold()
    for blocks in replay.blocks():
        fold.observe(JobBlock.of(blocks))
    return fold.curve(run, diverged(replay))


def compare_losses(
    ours: Sequence[LossCurve], theirs: Sequence[LossCurve], *, tolerance: float = TOLERANCE
) -> Parity:
    """Compare a run's losses with its baseline's, over the last work that all of them have done.

    Example: one run has done 3,200 samples, its baseline 6,400.  Compared are the losses from
    sample 2,560 to 3,200 (the last 20 % of what both did) in ten pieces of 64 samples.  The mean
    of the ten differences, over the baseline's loss, is the difference; twice their standard
    error is its noise, or that of the repeats if it is larger.  Single runs of unlike seeds
    differ only where that is more than `LEARNED` of what was learned.

    Args:
        ours: Repeats of the run.
        theirs: Repeats of the baseline.
        tolerance: Relative difference up to which the losses match.
    """
    curves = [*ours, *theirs]
    divergence = next((curve.diverged for curve in ours if curve.diverged), "")
    if divergence and not any(curve.diverged for curve in theirs):
        return Parity(verdict="differs", why=f"the loss is {divergence}; the baseline's is not")
    if not any(np.isfinite(curve.loss).any() for curve in curves):
        return Parity(verdict="unknown", why=NO_LOSS)
    unit = next((unit for unit in _FACTS if all(unit in curve.work for curve in curves)), None)
    if unit is None:
        return Parity(
            verdict="unknown",
            why="tokens or samples were not counted in both runs, or one of them was restarted",
        )
    since, end = _shared_range(curves, unit)
    edges = _edges([_work_in(curve, unit, since, end) for curve in curves], end)
    if edges is None:
        why = f"fewer than {LEAST_STEPS} steps with a loss in the {unit} that both have done"
        return Parity(verdict="unknown", why=why, unit=unit)
    pieces = [_piece_means(curve.loss, curve.work[unit], edges) for curve in curves]
    filled = [means for means in pieces if means is not None]
    if len(filled) < len(curves):
        why = f"the {unit} per step differ too much to compare the runs step by step"
        return Parity(verdict="unknown", why=why, unit=unit)
    levels = _Levels(
        ours=np.stack(filled[: len(ours)]),
        theirs=np.stack(filled[len(ours) :]),
        initial=_initial_loss(theirs[0]),
        seeds=len({curve.seed for curve in curves}),
    )
    return _judged(levels, unit, (since, end), tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Levels:
    """Mean losses of the pieces of the range, one row per repeat."""

    ours: _Column
    theirs: _Column
    initial: float
    """The loss at which the baseline began."""
    seeds: int
    """How many different ones they began with."""

    def noise(self) -> float:
        """Half of a 95 % interval of the difference: from its pieces, and from the repeats."""
        differences = self.ours.mean(axis=0) - self.theirs.mean(axis=0)
        within = 2 * math.sqrt(float(differences.var(ddof=1)) / len(differences))
        repeated = [side.mean(axis=1) for side in (self.ours, self.theirs) if len(side) > 1]
        freedom = sum(len(side) - 1 for side in repeated)
        if not freedom:
            return within
        between = math.sqrt(sum(float(side.var(ddof=1)) / len(side) for side in repeated))
        return max(within, float(stdtrit(freedom, 0.975)) * between)

    def by_chance(self) -> float:
        """How far apart runs may end that nobody repeated: 0 where that shows, or one seed does."""
        if self.seeds == 1 or len(self.ours) + len(self.theirs) > 2:
            return 0.0
        level = min(float(self.ours.mean()), float(self.theirs.mean()))
        return LEARNED * max(0.0, self.initial - level)


def _judged(
    levels: _Levels, unit: Unit, work_range: tuple[float, float], tolerance: float
) -> Parity:
    since, end = work_range
    ours, theirs = float(levels.ours.mean()), float(levels.theirs.mean())
    scale = max(abs(theirs), LEAST_LEVEL * levels.initial) or 1.0
    difference, noise = (ours - theirs) / scale, levels.noise() / scale
    verdict: Verdict = "same" if abs(difference) <= tolerance else "differs"
    by_chance = verdict == "differs" and abs(difference) <= levels.by_chance() / scale
    if by_chance or noise > (2 * tolerance if verdict == "same" else abs(difference) / SURE):
        verdict = "unknown"
    alone = "; their seeds differ, and single runs do not show what that makes" if by_chance else ""
    return Parity(
        verdict=verdict,
        why=f"loss {ours:.4g} and {theirs:.4g} after {count(round(end))} {unit}: "
        f"{share(abs(difference))} apart, noise {share(noise)}{alone}",
        unit=unit,
        since=since,
        work=end,
        loss=ours,
        baseline_loss=theirs,
        difference=difference,
        noise=noise,
        tolerance=tolerance,
    )


def _shared_range(curves: Sequence[LossCurve], unit: Unit) -> tuple[float, float]:
    """The last work that all have done: `RANGE` of it, more where that has too few losses."""
    start = max(float(curve.work[unit][0]) for curve in curves)
    end = min(float(curve.work[unit][-1]) for curve in curves)
    since = min(end - RANGE * (end - start), *(_enough_since(curve, unit, end) for curve in curves))
    return max(since, end - MOST_RANGE * (end - start)), end


def _enough_since(curve: LossCurve, unit: Unit, end: float) -> float:
    """Where the last `LEAST_STEPS` losses up to *end* begin; *end* if there are fewer."""
    work = _work_in(curve, unit, -math.inf, end)
    return float(work[-LEAST_STEPS]) if len(work) >= LEAST_STEPS else end


def _work_in(curve: LossCurve, unit: Unit, since: float, end: float) -> _Column:
    """Work done up to and with each step of a range that has a loss."""
    work = curve.work[unit]
    return work[np.isfinite(curve.loss) & (work >= since) & (work <= end)]


def _edges(works: Sequence[_Column], end: float) -> _Column | None:
    """Edges of pieces with equally many steps of the run that has fewest; `None` with too few."""
    fewest = min(works, key=len)
    if len(fewest) < LEAST_STEPS or fewest[0] >= end:
        return None
    firsts = [part[0] for part in np.array_split(fewest, CELLS)]
    return np.array([*firsts, end], dtype=np.float64)


def _piece_means(loss: _Column, work: _Column, edges: _Column) -> _Column | None:
    """Mean loss in each piece of the range; `None` where one of them has no step."""
    inside = np.isfinite(loss) & (work >= edges[0]) & (work <= edges[-1])
    pieces = np.clip(np.searchsorted(edges, work[inside], side="right") - 1, 0, len(edges) - 2)
    steps = np.bincount(pieces, minlength=len(edges) - 1)
    if not steps.all():
        return None
    sums = np.bincount(pieces, weights=loss[inside], minlength=len(edges) - 1)
    return np.asarray(sums / steps, dtype=np.float64)


def _initial_loss(baseline: LossCurve) -> float:
    losses = baseline.loss[np.isfinite(baseline.loss)][:CELLS]
    return abs(float(losses.mean())) if len(losses) else 0.0


def _joined(parts: list[_Column]) -> _Column:
    return np.concatenate(parts) if parts else np.empty(0)
