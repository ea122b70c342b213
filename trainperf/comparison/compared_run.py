"""One run of a comparison: its summary, its losses, and an estimate of each reading's error.

The error comes from resampling the run's steady steps, thinned evenly so that memory is constant.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import FEW_RANKS, JobBlock
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import examine
from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.fit_clock import CycleFold, estimated, fit_estimates, fit_readings
from trainperf.comparison.loss_parity import LossCurve, LossFold
from trainperf.core.arrays import Places
from trainperf.core.readings import STEP_MEAN_S, STEP_S
from trainperf.core.stats.bootstrap import LEAST_STEPS, Estimate, block_length
from trainperf.core.stats.quantiles import Distribution
from trainperf.core.stats.reductions import Rate, Ratio, SharedRate
from trainperf.core.steps.block import StepBlock
from trainperf.meters import METERS, Meter, Scope
from trainperf.traces.capture_files import CaptureReport


MOST_STEPS = 2000
"""At least half as many steps of a long run are kept: enough for a narrow interval."""

_SPEED_UNITS = ("s", "1/s", "FLOP/s")
"""Units of readings that get faster or slower."""

_RESAMPLED = (Distribution, Ratio, Rate, SharedRate)
"""Statistics of many steps; a maximum or a last value has no interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run of a comparison."""

    summary: Summary
    losses: LossCurve
    captures: tuple[CaptureReport, ...] = ()
    """The reports of its traces."""
    estimates: Mapping[str, Estimate]
    """Reading to the estimate of its logarithm; a reading without an interval is absent."""
    samples_error: float = 0.0
    """Standard error of the samples of a mean steady step, relative: 0 where all have as many.
    Packed texts have chance lengths, so that a batch has more or fewer rows."""


Repeats = Sequence[ComparedRun]
"""The repeats of one run; most runs have one."""


def read_run(run: Run) -> ComparedRun:
    """Read a run, or a window of one."""
    sample, losses = SampleFold(), LossFold()
    replay = Replay(run)
    cycles = CycleFold(list(replay.journals.values()))
    evidence = examine(
        run, replay=replay, observers=(sample.observe, losses.observe, cycles.observe)
    )
    summary = evidence.summary
    values = {
        name: reading.value
        for name, reading in summary.readings.items()
        if reading.value is not None
    }
    steps = sample.sample()
    steady, cells = estimates(steps, values), cycles.cells()
    typical = steady.get(STEP_S) or steady.get(STEP_MEAN_S)
    drift = 0.0 if typical is None else typical.drift
    return ComparedRun(
        summary=replace(summary, readings={**fit_readings(cells), **summary.readings}),
        captures=evidence.captures,
        losses=losses.curve(run, summary.run.notes.get("loss", "")),
        estimates={**steady, **fit_estimates(cells, drift)},
        samples_error=_samples_error(steps),
    )


def _samples_error(sample: tuple[StepBlock, ...]) -> float:
    """Relative standard error of the samples of a mean step, of the rank where it is largest."""
    counts = [samples for block in sample if (samples := block.fact("samples")) is not None]
    errors = [float(np.std(n) / np.mean(n)) / math.sqrt(len(n)) for n in counts if n.any()]
    return max((error for error in errors if math.isfinite(error)), default=0.0)


class SampleFold:
    """Every k-th steady step of every rank, in order; k doubles when there are too many.

    Of an imported log's steps that show one mean there is one: a mean is no more evidence.
    Of many ranks some stand for all: fewer vary by as much or more, so an error is rather too wide.

    A later attempt that recorded other facts replaces what came before it.
    """

    def __init__(self) -> None:
        self._blocks: list[list[StepBlock]] = []
        """Per rank."""
        self._stride, self._passed, self._kept = 1, 0, 0
        """Of the steady steps observed one in so many is kept."""

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of all ranks; of many ranks those of the typical ones are kept."""
        if not job.everybody:
            return  # after an elastic restart with fewer ranks: other work than the rest
        every = list(job.blocks.values())
        typical = np.linspace(0, len(every) - 1, min(len(every), FEW_RANKS)).astype(int)
        steady = [every[place].steady().means() for place in typical]
        if not self._blocks or self._blocks[0][0].schema != steady[0].schema:
            self._blocks = [[] for _ in steady]
            self._stride, self._passed, self._kept = 1, 0, 0
        length = len(steady[0])
        chosen = np.arange(-self._passed % self._stride, length, self._stride)
        self._passed += length
        self._kept += len(chosen)
        for kept, block in zip(self._blocks, steady, strict=True):
            kept.append(block.select(chosen))
        while self._kept > MOST_STEPS:
            every_other = np.arange(0, self._kept, 2)
            self._blocks = [[block.select(every_other)] for block in self.sample()]
            self._stride, self._kept = 2 * self._stride, len(every_other)

    def sample(self) -> tuple[StepBlock, ...]:
        """The steps kept, one block per rank; none if there was no steady step."""
        return tuple(StepBlock.joined(kept) for kept in self._blocks)


def estimates(sample: tuple[StepBlock, ...], values: Mapping[str, float]) -> dict[str, Estimate]:
    """The error of each reading, from its meter applied to resampled steps.

    Args:
        sample: Steady steps, the same ones of every rank.
        values: Values of the readings over all steps.
    """
    if not sample or len(sample[0]) < LEAST_STEPS:
        return {}
    meters = [
        meter
        for meter in METERS
        if meter.name in values
        and meter.scope is Scope.STEADY
        and type(meter.observe(sample[0])) in _RESAMPLED
    ]

    def at(places: Places) -> dict[str, float]:
        blocks = [block.select(places) for block in sample]
        return {meter.name: _value(meter, blocks) for meter in meters}

    whole = {meter.name: values[meter.name] for meter in meters}
    return estimated(whole, len(sample[0]), block_length(sample[0].wall_ns), at)


def is_speed(meter: Meter) -> bool:
    """Whether a reading gets faster or slower."""
    return meter.unit in _SPEED_UNITS and meter.better is not None


def _value(meter: Meter, blocks: Sequence[StepBlock]) -> float:
    """The meter's value over all ranks; NaN where it has none."""
    reductions = [meter.observe(block) for block in blocks]
    present = [reduction for reduction in reductions if reduction is not None]
    if not present:
        return math.nan
    value = (type(present[0]).across(present) if len(present) > 1 else present[0]).value()
    return math.nan if value is None else value
