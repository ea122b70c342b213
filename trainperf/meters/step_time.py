"""Step time: how long a step takes once the run has settled, and what the first one cost."""

from dataclasses import replace
from functools import partial

from trainperf.core.stats.quantiles import Distribution, InterquartileRange
from trainperf.core.stats.reductions import First, Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, MeterEntry, Scope


def _walls(block: StepBlock, percentile: float) -> Distribution | None:
    """Distribution of wall times, read at a percentile."""
    return replace(block.walls, percentile=percentile) if block.walls else None


def _spread(block: StepBlock) -> InterquartileRange | None:
    """Distribution of wall times, read as its interquartile range."""
    return InterquartileRange.of(block.wall_ns / 1e9)


def _mean(block: StepBlock) -> Ratio:
    """Wall seconds over steps."""
    return Ratio(block.total_wall_ns / 1e9, float(len(block)), len(block))


def _first(block: StepBlock) -> First:
    """Wall time of the block's earliest step."""
    return First(float(block.index[0]), float(block.wall_ns[0]) / 1e9)


METERS = (
    MeterEntry(
        name="step_s",
        unit="s",
        about="""Median wall time of a steady step, host clock: from one first fetch to the next,
        gaps cut.

        Includes everything the loop did in between, callbacks and logging too.  It is not device
        busy time, and not a mean: see `step_mean_s` for what multiplies up to the fit.

        Wrong where: steps are of two kinds: a median shows one of them; hold it against
        `step_mean_s`.
        To confirm: the wall time of the steps by a stopwatch over a thousand of them.
        """,
        measure=Measure.STEP_TIME,
        better="lower",
        statistic=partial(_walls, percentile=50.0),
    ),
    MeterEntry(
        name="step_p95_s",
        unit="s",
        about="""Wall time that 95 % of the steady steps stay below, host clock.

        Wrong where: there are fewer than some hundreds of steady steps.
        To confirm: the step times in `report.html`.
        """,
        measure=Measure.STEP_TIME,
        better="lower",
        statistic=partial(_walls, percentile=95.0),
    ),
    MeterEntry(
        name="step_p99_s",
        unit="s",
        about="""Wall time that 99 % of the steady steps stay below, host clock.

        Wrong where: there are fewer than a thousand steady steps.
        To confirm: the step times in `report.html`.
        """,
        measure=Measure.STEP_TIME,
        better="lower",
        statistic=partial(_walls, percentile=99.0),
    ),
    MeterEntry(
        name="step_iqr_s",
        unit="s",
        about="""Interquartile range of the steady steps' wall time: the middle half lies this far
        apart.

        Wrong where: it is the spread of steps, not the uncertainty of `step_s`: that is `low` and
        `high`.
        To confirm: the step times in `report.html`.
        """,
        measure=Measure.STEP_TIME,
        better="lower",
        statistic=_spread,
    ),
    MeterEntry(
        name="step_mean_s",
        unit="s",
        about="""Mean wall time of a steady step, host clock: what the phases' means add up to.

        Wrong where: a few very slow steps carry it.
        To confirm: the fit's wall time without its gaps, over its steps.
        """,
        measure=Measure.STEP_TIME,
        better="lower",
        statistic=_mean,
    ),
    MeterEntry(
        name="first_step_s",
        unit="s",
        about="""Wall time of the very first step, host clock: allocation, autotuning, compilation.

        Never mixed into the steady statistics.

        Wrong where: a sanity check has warmed the caches before it.
        To confirm: a run with `num_sanity_val_steps=0`.
        """,
        measure=Measure.STEP_TIME,
        better="lower",
        scope=Scope.ALL,
        statistic=_first,
    ),
)
