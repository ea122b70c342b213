"""Fit clock of a run: wall time per unit of work, with everything that recurs in it.

A *cycle* is a step and the gaps up to the next one: waiting for data, the work, slow steps,
validation, checkpoints, epoch starts.  The mean cycle times the number of steps is what a training
costs.  Apart are what happens once and what is not the training's: warm-up, compilation, start
and end of the fit, steps that were traced or audited, and the other training's turns.

The median step answers another question: an epoch start every tenth step does not move it, and
where a loader is late every fourth step, it says nothing of the three others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import compress, repeat

import numpy as np

from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.journal import Journal
from trainperf.core.arrays import Column, Places
from trainperf.core.phases import Tag
from trainperf.core.readings import (
    EFFECTIVE_TOKENS_PER_S,
    SAMPLES_PER_S,
    STEP_MEAN_S,
    STEP_S,
)
from trainperf.core.stats.bootstrap import (
    LEAST_STEPS,
    RESAMPLES,
    Estimate,
    estimate,
    mixed,
    period_length,
    resamples,
    segments,
)
from trainperf.core.steps.block import MEAN_OF, StepBlock
from trainperf.meters.fold import Reading


FIT_STEP_S = "fit_step_s"
"""Mean cycle, seconds on the host's clock; over ranks that of the slowest one in each step."""

FIT_TOKENS_PER_S = "fit_effective_tokens_per_s"
FIT_SAMPLES_PER_S = "fit_samples_per_s"

FIT_CLOCK: Mapping[str, str] = {
    STEP_S: FIT_STEP_S,
    STEP_MEAN_S: FIT_STEP_S,
    EFFECTIVE_TOKENS_PER_S: FIT_TOKENS_PER_S,
    SAMPLES_PER_S: FIT_SAMPLES_PER_S,
}
"""Reading of steady steps that may decide a comparison, to the same by the fit clock."""

FIT_BETTER: Mapping[str, str] = {
    FIT_STEP_S: "lower",
    FIT_TOKENS_PER_S: "higher",
    FIT_SAMPLES_PER_S: "higher",
}

_APART = int(Tag.WARMUP | Tag.PROFILED | Tag.AUDITED | Tag.RECOMPILED | Tag.OUT_OF_TURN | Tag.TRIAL)
"""Tags of steps that are no part of the fit clock, with the gaps that follow them."""

MOST = 4096
"""Cells kept; at least half as many of a long run."""

_FACTS = {FIT_TOKENS_PER_S: "tokens_effective", FIT_SAMPLES_PER_S: "samples"}


class CycleFold:
    """Every cycle of a run, in order, in constant memory: fed in the pass that makes its summary.

    Args:
        journals: Of the ranks, in their order, filled while the steps are read: gaps are in them,
            where they are not in the blocks.
    """

    def __init__(self, journals: Sequence[Journal]) -> None:
        self._journals = journals
        self._cells: list[Column] = [np.empty((0, 2 + len(_FACTS)))]
        """Per cell: seconds, steps, tokens, samples; NaN where not counted."""
        self._counted: Column = np.empty(0)
        """Numbers of the last block's steps that are in the cells."""
        self._kept = 0
        self._together = 1
        """Cycles of a cell."""

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of all ranks."""
        # Cycles, the longest of any rank, with the gaps that were read by now.
        self._add_late(before=job.first.index[0])
        cycles = [
            block.wall_ns / 1e9 + _gaps_s(block, self._journals[place])
            for place, block in job.blocks.items()
        ]
        seconds = np.asarray(np.maximum.reduce(cycles))
        chosen = (job.first.tags & _APART) == 0
        self._counted = job.first.index[chosen]
        work = [job.total(fact) for fact in _FACTS.values()]
        columns = [seconds, np.ones(len(seconds)), *work]
        cells = self._of_means(np.stack(columns, axis=1)[chosen], job.first.select(chosen))
        self._cells.append(cells if self._together == 1 else _added(cells, self._together))
        self._kept += len(self._cells[-1])
        while self._kept > MOST:
            halved = _added(np.concatenate(self._cells), 2)
            self._cells, self._kept, self._together = [halved], len(halved), 2 * self._together

    def cells(self) -> Column:
        """What they add up to, a row for one or several cycles: seconds, steps, tokens, samples."""
        self._add_late(before=np.inf)
        return np.concatenate(self._cells)

    def _of_means(self, cells: Column, block: StepBlock) -> Column:
        """One cell for the steps of an imported log that show one mean."""
        mean_of = block.fact(MEAN_OF)
        if mean_of is None or mean_of.all():
            return cells
        begins = np.flatnonzero(mean_of)
        before = cells[: begins[0] if len(begins) else None].sum(axis=0)
        last = next((cells for cells in reversed(self._cells) if len(cells)), None)
        if last is not None:
            last[-1] += before  # they began in the block before
        return np.asarray(np.add.reduceat(cells, begins, axis=0)) if len(begins) else cells[:0]

    def _add_late(self, before: float) -> None:
        """Add gaps that were read after the block with their step: to its last cell."""
        late_s = max(map(self._late_s, self._journals, repeat(before)), default=0.0)
        cells = next((cells for cells in reversed(self._cells) if len(cells)), None)
        if late_s and cells is not None:
            cells[-1, 0] += late_s

    def _late_s(self, journal: Journal, before: float) -> float:
        """Of one rank; gaps after steps that are apart are dropped."""
        steps = [step for step in journal.gaps_after if step < before]
        gaps_ns = [journal.gaps_after.pop(step) for step in steps]
        counted = np.isin(steps, self._counted).tolist()
        return sum(compress(gaps_ns, counted)) / 1e9


def fit_readings(cells: Column) -> dict[str, Reading]:
    """Seconds per step and, where they were counted, work per second; of the cells of a run."""
    n = int(cells[:, 1].sum())
    values = {name: _value(name, cells) for name in FIT_BETTER}
    return {
        name: Reading(value=value, unit="s" if name == FIT_STEP_S else "1/s", n=n)
        for name, value in values.items()
        if value is not None
    }


def fit_estimates(cells: Column, drift: float) -> dict[str, Estimate]:
    """The error of each: whole periods of what recurs are resampled.

    Args:
        cells: Of a run.
        drift: Variance between parts of the run, of its steady steps: how many validations fall
            into a part says nothing about the machine.
    """
    if len(cells) < LEAST_STEPS:
        return {}
    values = {name: reading.value or 0.0 for name, reading in fit_readings(cells).items()}

    def at(places: Places) -> dict[str, float]:
        return {name: _value(name, cells[places]) or 0.0 for name in values}

    block = period_length(cells[:, 0] / cells[:, 1])
    every = estimated(values, len(cells), block, at)
    return {name: replace(each, drift=drift) for name, each in every.items()}


def _value(name: str, cells: Column) -> float | None:
    seconds, steps, *work = cells.sum(axis=0).tolist()
    if not steps or not seconds:
        return None
    if name == FIT_STEP_S:
        return float(seconds / steps)
    amount = work[list(_FACTS).index(name)]
    return float(amount / seconds) if amount > 0 else None  # NaN is not


def estimated(
    values: Mapping[str, float],
    n: int,
    block: int,
    at: Callable[[Places], Mapping[str, float]],
) -> dict[str, Estimate]:
    """The error of each value of a run, from the same of its resampled steps and of its parts.

    Args:
        values: Of all steps, or cells.
        n: How many these are.
        block: How many neighbours are drawn together.
        at: The values of some of them, by their places.
    """
    drawn, parts, mixture = (
        [at(places) for places in chosen]
        for chosen in (resamples(n, block, RESAMPLES), segments(n), mixed(n))
    )
    every = {
        name: estimate(value, *([each[name] for each in side] for side in (drawn, parts, mixture)))
        for name, value in values.items()
    }
    return {name: each for name, each in every.items() if each is not None}


def _gaps_s(block: StepBlock, journal: Journal) -> Column:
    """Time in gaps after each step."""
    gaps = journal.gaps_after
    after = [gaps.pop(index, 0) for index in block.index.astype(int).tolist()]
    return np.asarray(np.array(after) / 1e9)


def _added(cells: Column, number: int) -> Column:
    """Neighbours added up, so many to a cell; the last may have fewer."""
    return np.asarray(np.add.reduceat(cells, np.arange(0, len(cells), number), axis=0))
