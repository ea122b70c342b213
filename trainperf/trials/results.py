"""Results of trials: from steps, blocks of steps and losses to what a trial came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isclose
from statistics import fmean

from trainperf.core.artifacts import trials as document
from trainperf.core.stats.bootstrap import RatioInterval
from trainperf.trials.speedup import switched_speedup
from trainperf.trials.trial import Trial


LEAST_GAIN = 1.02
"""A change that brings less is not put into the set, and is not tried where its ceiling does."""
PROMISING = 1.1
"""Speed-up of a ceiling from which on what it bounds is tried before everything else."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One step of the training."""

    ns: int
    """Host time, waits for data included."""
    work: float
    """Batches of the user's loader in it."""
    loss: float | None = None
    """`None` unless `Conductor.reads_loss`, or where the loop tells none."""


@dataclass(slots=True)
class BlockTimes:
    """Blocks of steps in a row with a change, or without it."""

    ns: list[float] = field(default_factory=list)
    """Of each block, per unit of work; of several ranks, of the slowest."""
    peaks: list[int] = field(default_factory=list)
    """Most bytes that the device's allocator had handed out in each; none on a CPU."""

    def peak_bytes(self, without: int) -> int | None:
        """The highest peak, less the bytes that trials themselves hold; `None` on a CPU."""
        return max(self.peaks) - without if self.peaks else None


@dataclass(slots=True)
class Blocks:
    """Blocks that took turns."""

    off: BlockTimes = field(default_factory=BlockTimes)
    on: BlockTimes = field(default_factory=BlockTimes)
    graphs: int = 0
    """That torch.compile built in them."""

    @property
    def pairs(self) -> int:
        """Blocks with the change that have one without it beside them."""
        return min(len(self.off.ns), len(self.on.ns))

    def speedup(self) -> RatioInterval:
        """By all pairs so far."""
        return switched_speedup(self.off.ns, self.on.ns)


def result_of(
    trial: Trial, *, verdict: document.TrialVerdict, **facts: object
) -> document.TrialResult:
    """What a trial came to, under its own names."""
    return document.TrialResult(
        id=trial.id,
        kind=trial.kind,
        title=trial.title or trial.id,
        apply=trial.apply,
        where=trial.where,
        rules=trial.rules,
        verdict=verdict,
        **facts,  # type: ignore[arg-type] # names of its own fields
    )


def mean_loss(steps: Sequence[Ran]) -> float | None:
    """Of some steps; `None` unless each told its loss."""
    losses = [ran.loss for ran in steps if ran.loss is not None]
    return fmean(losses) if losses and len(losses) == len(steps) else None


def alike(losses: tuple[float, float], tolerance: float | None) -> bool:
    """Whether both mean losses are those of the same training."""
    return tolerance is None or isclose(*losses, rel_tol=tolerance, abs_tol=1e-2 * tolerance)


class RaisedError(Exception):
    """A trial raised when it was switched."""


def most_promising(trials: Sequence[Trial], results: Sequence[document.TrialResult]) -> Trial:
    """The next to be tried: one whose ceiling is high, late or not; else the first of them."""
    brings = {each.id: each.speedup or 0.0 for each in results}
    return max(trials, key=lambda trial: max(brings.get(trial.bounded_by, 0.0), PROMISING))


def bound_of(trial: Trial, results: Sequence[document.TrialResult]) -> str:
    """Why its ceiling leaves nothing to try; empty if it does."""
    why = (
        f"not worth a trial: {each.title} brings {each.speedup:.2f}×"
        for each in results
        if each.id == trial.bounded_by
        and each.little_to_gain
        and (each.speedup or 0.0) < LEAST_GAIN
    )
    return next(why, "")
