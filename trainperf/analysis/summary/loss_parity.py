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
"""Share of the work that both have done which is compared, the last one; of a short run up to half,
since early losses do not show what a run learns."""

CELLS = 10
"""Pieces of that range, of two steps at least; how their differences vary is the noise."""

LEARNED = 0.1
"""Share of what was learned, from the first losses down to the lower level, up to which two single
runs of unlike seeds may differ by chance: their own scatter does not show how much runs do.  And of
the first losses that is divided by at least: never by a loss near 0."""

SURE = 1.5
"""Times the noise that losses which differ are apart: a 99 % interval, about, since such a loss
overrules any gain, and one training in twenty must not be stopped by chance."""

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
            self._works[unit].append(job.over.total(fact))

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
    since, edges = _edges(curves, unit)
    if edges is None:
        why = f"fewer than {2 * CELLS} steps with a loss in the {unit} that both have done"
        return Parity(verdict="unknown", why=why, unit=unit)
    pieces = [_piece_means(curve.loss, curve.work[unit], edges) for curve in curves]
    filled = [means for means in pieces if means is not None]
    if len(filled) < len(curves):
        why = f"the {unit} per step differ too much to compare the runs step by step"
        return Parity(verdict="unknown", why=why, unit=unit)
    first = theirs[0].loss[np.isfinite(theirs[0].loss)][:CELLS]
    levels = _Levels(
        ours=np.stack(filled[: len(ours)]),
        theirs=np.stack(filled[len(ours) :]),
        initial=abs(float(first.mean())),
        seeds=len({curve.seed for curve in curves}),
    )
    return _judged(levels, unit, (since, float(edges[-1])), tolerance)


def _judged(
    levels: "_Levels", unit: Unit, work_range: tuple[float, float], tolerance: float
) -> Parity:
    difference, noise, by_chance = levels.difference(), levels.noise(), False
    verdict: Verdict = "same" if abs(difference) <= tolerance else "differs"
    if verdict == "differs":
        by_chance = abs(difference) <= levels.by_chance()
    if by_chance or noise > (2 * tolerance if verdict == "same" else abs(difference) / SURE):
        verdict = "unknown"
    alone = "; their seeds differ, and single runs do not show what that makes" if by_chance else ""
    (loss, baseline_loss), (since, end) = levels.means(), work_range
    return Parity(
        verdict=verdict,
        why=f"loss {loss:.4g} and {baseline_loss:.4g} after {count(round(end))} {unit}: "
        f"{share(abs(difference))} apart, noise {share(noise)}{alone}",
        unit=unit,
        since=since,
        work=end,
        loss=loss,
        baseline_loss=baseline_loss,
        difference=difference,
        noise=noise,
        tolerance=tolerance,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Levels:
    """Mean losses of the pieces of the range, one row per repeat; results relative to the loss."""

    ours: _Column
    theirs: _Column
    initial: float
    """The loss at which the baseline began."""
    seeds: int
    """How many different ones they began with."""

    def means(self) -> tuple[float, float]:
        """Ours and theirs."""
        return float(self.ours.mean()), float(self.theirs.mean())

    def _scale(self) -> float:
        return max(abs(self.means()[1]), LEARNED * self.initial) or 1.0

    def difference(self) -> float:
        """Positive where ours is higher."""
        return (self.means()[0] - self.means()[1]) / self._scale()

    def noise(self) -> float:
        """Half of a 95 % interval of the difference: from its pieces, and from the repeats."""
        differences = self.ours.mean(axis=0) - self.theirs.mean(axis=0)
        noise = 2 * math.sqrt(float(differences.var(ddof=1)) / len(differences))
        repeated = [side.mean(axis=1) for side in (self.ours, self.theirs) if len(side) > 1]
        if repeated:
            freedom = sum(len(side) - 1 for side in repeated)
            between = math.sqrt(sum(float(side.var(ddof=1)) / len(side) for side in repeated))
            noise = max(noise, float(stdtrit(freedom, 0.975)) * between)
        return noise / self._scale()

    def by_chance(self) -> float:
        """How far apart runs may end that nobody repeated: 0 where that shows, or one seed does."""
        if self.seeds == 1 or len(self.ours) + len(self.theirs) > 2:
            return 0.0
        return LEARNED * max(0.0, self.initial - min(self.means())) / self._scale()


def _edges(curves: Sequence[LossCurve], unit: Unit) -> tuple[float, _Column | None]:
    """Where the last work begins that all have done, and edges of pieces of it, if it has enough.

    Each has equally many steps of the run that has fewest.
    """
    starts, ends = zip(
        *((curve.work[unit][0], curve.work[unit][-1]) for curve in curves), strict=True
    )
    start, end = max(starts), min(ends)
    works = [
        curve.work[unit][np.isfinite(curve.loss) & (curve.work[unit] <= end)] for curve in curves
    ]
    enough = [work[-2 * CELLS] for work in works if len(work) >= 2 * CELLS]
    since = float(max(min(end - RANGE * (end - start), *enough, end), (start + end) / 2))
    fewest = min((work[work >= since] for work in works), key=len)
    if len(fewest) < 2 * CELLS or fewest[0] >= end:
        return since, None
    firsts = [part[0] for part in np.array_split(fewest, CELLS)]
    return since, np.array([*firsts, end], dtype=np.float64)


def _piece_means(loss: _Column, work: _Column, edges: _Column) -> _Column | None:
    """Mean loss in each piece of the range; `None` where one of them has no step."""
    inside = np.isfinite(loss) & (work >= edges[0]) & (work <= edges[-1])
    pieces = np.clip(np.searchsorted(edges, work[inside], side="right") - 1, 0, len(edges) - 2)
    steps = np.bincount(pieces, minlength=len(edges) - 1)
    if not steps.all():
        return None
    sums = np.bincount(pieces, weights=loss[inside], minlength=len(edges) - 1)
    return np.asarray(sums / steps, dtype=np.float64)


def _joined(parts: list[_Column]) -> _Column:
    return np.concatenate(parts) if parts else np.empty(0)
