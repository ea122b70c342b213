"""Loss parity: whether a run learns what its baseline learned, by their losses at equal work.

Equal work is equal effective tokens, else equal samples: the loss after as many *steps* says
nothing where the batches differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.loss_parity import TOLERANCE, Parity, Unit, Verdict
from trainperf.analysis.summary.run_facts import diverged
from trainperf.core.arrays import Column
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, share
from trainperf.core.stats.student import student_quantile


RANGE = 0.2
"""Share of the work that both have done which is compared, the last one; of a short run up to half,
since early losses do not show what a run learns."""

PIECES = LIMITS.steps // 2
"""Equal pieces of that range, of two steps or more each; how their differences vary is noise."""

NO_LOSS = "no loss was recorded; a loop of your own gives it to LoopMonitor.end_step(loss)"
"""Of a loop that is measured from outside, unless its model returns the loss."""

_FACTS: dict[Unit, tuple[str, str]] = {
    "effective tokens": ("tokens_effective", "tokens"),
    "samples": ("samples", "samples"),
}
"""The fact that counts each, and its name among what earlier fits have done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """The loss of a run after each step; all ranks together."""

    loss: Column
    """Mean over ranks; NaN in a step without one."""
    work: dict[Unit, Column]
    """Work done up to and with each step, earlier fits included; units not counted are absent."""
    diverged: str = ""
    """Since when the loss is NaN or infinite, in words; empty if it is not."""
    seed: object = None
    """Of the random generators as the fit began; two that are not known count as one."""


class LossFold:
    """The losses of a run and the work done, collected step by step."""

    def __init__(self) -> None:
        self._steps = [np.empty((1 + len(_FACTS), 0))]

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of all ranks."""
        amounts = [job.total(fact) for fact, _ in _FACTS.values()]
        self._steps.append(np.stack([job.mean_of_those_having("loss"), *amounts]))

    def curve(self, run: Run, diverged: str) -> LossCurve:
        """The curve of *run*; *diverged* says since when its loss is not finite."""
        first = run.attempts[0][0].info
        loss, *amounts = np.concatenate(self._steps, axis=1)
        # Steps that a restart repeats from its checkpoint would count twice.
        units = _FACTS.items() if len(run.attempts) == 1 else ()
        return LossCurve(
            loss=loss,
            work={
                unit: first.totals.get(earlier, 0) + np.cumsum(amount)
                for (unit, (_, earlier)), amount in zip(units, amounts, strict=False)
                if len(amount) and bool(np.isfinite(amount).all())
            },
            diverged=diverged,
            seed=first.config.get("seed"),
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
    of the ten differences, over the baseline's loss, is the difference; its standard error is that
    of the pieces, or of the repeats if it is larger.  Up to the tolerance losses are the same, if
    half of the 95 % interval is no more than twice that.  Beyond it they differ, if the 99 %
    interval is all on one side: such a loss overrules any gain, and one training in twenty must not
    be stopped by chance.  Single runs of unlike seeds differ only where that is a notable part of
    what was learned.

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
    # Up to its first loss, and beyond its last, nothing is known of a curve.
    measured = [np.isfinite(curve.loss) for curve in curves]
    works = [curve.work[unit][there] for curve, there in zip(curves, measured, strict=True)]
    losses = [curve.loss[there] for curve, there in zip(curves, measured, strict=True)]
    edges = _pieces(works)
    if edges is None:
        return Parity(
            verdict="unknown",
            why=f"fewer than {LIMITS.steps} steps with a loss in the {unit} that both have done",
            unit=unit,
        )
    means = np.stack([_means(work, loss, edges) for work, loss in zip(works, losses, strict=True)])
    first = abs(float(losses[len(ours)][:PIECES].mean()))
    judged = _judged(
        means[: len(ours)],
        means[len(ours) :],
        first,
        tolerance,
        alike=len(curves) > 2 or ours[0].seed == theirs[0].seed,
    )
    return msgspec.structs.replace(
        judged,
        why=f"loss {judged.loss:.4g} and {judged.baseline_loss:.4g} after "
        f"{count(round(edges[-1]))} {unit}: {judged.why}",
        unit=unit,
        since=float(edges[0]),
        work=float(edges[-1]),
    )


def _judged(
    ours: Column, theirs: Column, initial: float, tolerance: float, *, alike: bool
) -> Parity:
    """The verdict on mean losses of pieces of the range, one row per repeat.

    Relative to the baseline's loss: never to one near 0, of what was learned since the *initial*
    one.  Of one run on either side whose seeds are not *alike* nothing shows how far runs end
    apart.
    """
    loss, baseline_loss = float(ours.mean()), float(theirs.mean())
    scale = max(abs(baseline_loss), LIMITS.notable * initial) or 1.0
    difference, apart = (loss - baseline_loss) / scale, abs(loss - baseline_loss) / scale
    noise, at_most = (half / scale for half in _intervals(ours, theirs))
    learned = max(0.0, initial - min(loss, baseline_loss)) / scale
    by_chance = not alike and tolerance < apart <= LIMITS.notable * learned
    verdict: Verdict = "same" if apart <= tolerance else "differs"
    if by_chance or (noise > 2 * tolerance if verdict == "same" else at_most > apart):
        verdict = "unknown"
    alone = "; their seeds differ, and single runs do not show what that makes" if by_chance else ""
    return Parity(
        verdict=verdict,
        why=f"{share(apart)} apart, noise {share(noise)}{alone}",
        loss=loss,
        baseline_loss=baseline_loss,
        difference=difference,
        noise=noise,
        tolerance=tolerance,
    )


def _intervals(ours: Column, theirs: Column) -> tuple[float, float]:
    """Halves of the 95 and of the 99 % interval of the difference, by Student's factors.

    The noise is that of the pieces, or of the repeats where it is larger.
    """
    differences = ours.mean(axis=0) - theirs.mean(axis=0)
    repeats = [side.mean(axis=1) for side in (ours, theirs) if len(side) > 1]
    return max(_student(samples) for samples in ([differences], repeats) if samples)


def _student(samples: Sequence[Column]) -> tuple[float, float]:
    freedom = sum(len(values) - 1 for values in samples)
    error = math.sqrt(sum(float(values.var(ddof=1)) / len(values) for values in samples))
    return student_quantile(freedom, 0.975) * error, student_quantile(freedom, 0.995) * error


def _pieces(works: Sequence[Column]) -> Column | None:
    """Edges of the pieces of the last work that all have done; `None` with too few steps in it."""
    if not all(map(len, works)):
        return None
    start, end = max(float(work[0]) for work in works), min(float(work[-1]) for work in works)
    works = [work[work <= end] for work in works]
    enough = [float(work[-LIMITS.steps]) for work in works if len(work) >= LIMITS.steps]
    since = max(min(end - RANGE * (end - start), *enough, end), (start + end) / 2)
    fewest = min(int((work >= since).sum()) for work in works)
    return np.linspace(since, end, PIECES + 1) if fewest >= LIMITS.steps and since < end else None


def _means(work: Column, loss: Column, edges: Column) -> Column:
    """Mean loss in each piece of the range, by work: a loss is that of the work since the last."""
    sums = np.append(0.0, np.cumsum(loss[1:] * np.diff(work)))
    return np.asarray(np.diff(np.interp(edges, work, sums)) / np.diff(edges))
