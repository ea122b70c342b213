"""Does a run still learn what its baseline learned?  Their losses at equal work done.

Equal work is equal effective tokens, else equal samples: the loss after as many *steps* says
nothing where the batches differ.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.blocks import StepBlock
from trainperf.doubts import diverged
from trainperf.replay import Replay
from trainperf.run import Run
from trainperf.units import count, share


TOLERANCE = 0.02
"""Relative difference of the losses up to which they match; fixed before any run was compared."""

RANGE = 0.2
"""The last part of the work that both have done: what is compared."""

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
    work: float | None = None
    """Where the compared range ends, in that unit."""
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
    return compared(curve_of(run), curve_of(baseline))


def curve_of(run: Run) -> LossCurve:
    """The losses of a run."""
    replay = Replay(run)
    losses: list[_Column] = []
    works: dict[Unit, list[_Column]] = {unit: [] for unit in _FACTS}
    for blocks in replay.blocks():
        present = [block for block in blocks if len(block)]
        losses.append(_mean([_fact(block, "loss") for block in present]))
        for unit, fact in _FACTS.items():
            works[unit].append(np.sum([_fact(block, fact) for block in present], axis=0))
    earlier = run.attempts[0][0].info.totals
    # What a restart did again from its checkpoint would count twice.
    units = _FACTS if len(run.attempts) == 1 else {}
    return LossCurve(
        loss=_joined(losses),
        work={
            unit: earlier.get(_EARLIER[unit], 0) + np.cumsum(done)
            for unit in units
            if len(done := _joined(works[unit])) and bool(np.isfinite(done).all())
        },
        diverged=diverged(replay),
    )


def compared(run: LossCurve, baseline: LossCurve) -> Parity:
    """The run's losses beside the baseline's, over the last work that both have done."""
    if run.diverged and not baseline.diverged:
        return Parity(verdict="differs", why=f"the loss is {run.diverged}; the baseline's is not")
    unit = next((one for one in _FACTS if one in run.work and one in baseline.work), None)
    if unit is None:
        return Parity(
            verdict="unknown",
            why="tokens or samples were not counted in both runs, or one of them was restarted",
        )
    done, wanted = run.work[unit], baseline.work[unit]
    start, end = float(max(done[0], wanted[0])), float(min(done[-1], wanted[-1]))
    edges = np.linspace(end - RANGE * (end - start), end, CELLS + 1)
    ours, theirs = _cells(run.loss, done, edges), _cells(baseline.loss, wanted, edges)
    if end <= start or ours is None or theirs is None:
        said = f"fewer than {LEAST_STEPS} steps with a loss in the {unit} that both have done"
        return Parity(verdict="unknown", why=said, unit=unit)
    return _judged(ours, theirs, first=_level(baseline), unit=unit, end=end)


def _judged(ours: _Column, theirs: _Column, *, first: float, unit: Unit, end: float) -> Parity:
    apart = ours - theirs
    level = max(abs(float(theirs.mean())), LEAST_LEVEL * first) or 1.0
    difference = float(apart.mean()) / level
    noise = 2 * float(apart.std(ddof=1)) / len(apart) ** 0.5 / level
    losses = f"loss {ours.mean():.4g} and {theirs.mean():.4g} after {count(round(end))} {unit}"
    said = f"{losses}: {share(abs(difference))} apart, noise {share(noise)}"
    verdict: Verdict = "same" if abs(difference) <= TOLERANCE else "differs"
    if noise > (2 * TOLERANCE if verdict == "same" else abs(difference)):
        verdict = "unknown"
    return Parity(
        verdict=verdict,
        why=said,
        unit=unit,
        work=end,
        loss=float(ours.mean()),
        baseline_loss=float(theirs.mean()),
        difference=difference,
        noise=noise,
    )


def _cells(loss: _Column, work: _Column, edges: _Column) -> _Column | None:
    """Mean loss in each piece of the range; `None` where there are too few steps."""
    known = np.isfinite(loss) & (work >= edges[0]) & (work <= edges[-1])
    if int(known.sum()) < LEAST_STEPS:
        return None
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
