"""Results of trials: from steps, blocks of steps and losses to what a trial came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose, isfinite
from statistics import fmean

from trainperf.core.artifacts import trials as document
from trainperf.trials.speedup import Block
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
    loss: float | None = None
    """`None` unless `Conductor.reads_loss`, or where the loop tells none; it may not be finite."""


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


def peak_bytes(blocks: Sequence[Block], without: int) -> int | None:
    """The highest peak, less the bytes that trials themselves hold; `None` on a CPU."""
    peaks = [block.peak_bytes for block in blocks if block.peak_bytes is not None]
    return max(peaks) - without if peaks else None


def mean_loss(steps: Sequence[Ran]) -> float | None:
    """Of some steps; `None` unless each told its loss."""
    losses = [ran.loss for ran in steps if ran.loss is not None]
    return fmean(losses) if losses and len(losses) == len(steps) else None


def alike(losses: tuple[float, float], tolerance: float | None) -> bool:
    """Whether both mean losses are those of the same training: nothing is unlike one that fails."""
    if tolerance is None or not isfinite(losses[0]):
        return True
    return isclose(*losses, rel_tol=tolerance, abs_tol=1e-2 * tolerance)


class FailedError(Exception):
    """A trial can come to no number: it raised when it was switched, or is compiled each time."""


def most_promising(trials: Sequence[Trial], results: Sequence[document.TrialResult]) -> Trial:
    """The next to be tried: one whose ceiling is high, else the first of them."""
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
