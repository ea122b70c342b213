"""Step time: how long a step takes once the run has settled, and what the first one cost."""

from trainperf.core.stats.quantiles import Distribution, InterquartileRange
from trainperf.core.stats.reductions import First, Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, Meter, Scope


class _StepMeter(Meter):
    """A time of which less is better."""

    unit = "s"
    measure = Measure.STEP_TIME
    better = "lower"


class StepTime(_StepMeter):
    """Median wall time of a steady step, host clock: from one first fetch to the next, gaps cut.

    Includes everything the loop did in between, callbacks and logging too.  It is not device busy
    time, and not a mean: see `step_mean_s` for what multiplies up to the fit.

    Wrong where: steps are of two kinds: a median shows one of them; hold it against `step_mean_s`.
    To confirm: the wall time of the steps by a stopwatch over a thousand of them.
    """

    name = "step_s"
    percentile = 50.0

    def observe(self, block: StepBlock) -> Distribution | None:
        """Distribution of wall times, read at this meter's percentile."""
        return block.walls.at(self.percentile) if block.walls else None


class StepTimeP95(StepTime):
    """Wall time that 95 % of the steady steps stay below, host clock.

    Wrong where: there are fewer than some hundreds of steady steps.
    To confirm: the step times in `report.html`.
    """

    name = "step_p95_s"
    percentile = 95.0


class StepTimeP99(StepTime):
    """Wall time that 99 % of the steady steps stay below, host clock.

    Wrong where: there are fewer than a thousand steady steps.
    To confirm: the step times in `report.html`.
    """

    name = "step_p99_s"
    percentile = 99.0


class StepMean(_StepMeter):
    """Mean wall time of a steady step, host clock: what the phases' means add up to.

    Wrong where: a few very slow steps carry it.
    To confirm: the fit's wall time without its gaps, over its steps.
    """

    name = "step_mean_s"

    def observe(self, block: StepBlock) -> Ratio | None:
        """Wall seconds over steps."""
        return Ratio(block.total_wall_ns / 1e9, float(len(block)), len(block))


class StepIQR(_StepMeter):
    """Interquartile range of the steady steps' wall time: the middle half lies this far apart.

    Wrong where: it is the spread of steps, not the uncertainty of `step_s`: that is `low` and
    `high`.
    To confirm: the step times in `report.html`.
    """

    name = "step_iqr_s"

    def observe(self, block: StepBlock) -> InterquartileRange | None:
        """Distribution of wall times, read as its interquartile range."""
        return InterquartileRange.of(block.wall_ns / 1e9)


class FirstStep(_StepMeter):
    """Wall time of the very first step, host clock: allocation, autotuning, compilation.

    Never mixed into the steady statistics.

    Wrong where: a sanity check has warmed the caches before it.
    To confirm: a run with `num_sanity_val_steps=0`.
    """

    name = "first_step_s"
    scope = Scope.ALL

    def observe(self, block: StepBlock) -> First | None:
        """Wall time of the block's earliest step."""
        return First(float(block.index[0]), float(block.wall_ns[0]) / 1e9)


METERS = (
    StepTime(),
    StepTimeP95(),
    StepTimeP99(),
    StepIQR(),
    StepMean(),
    FirstStep(),
)
