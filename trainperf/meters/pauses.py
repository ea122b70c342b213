"""Pauses: time lost to the garbage collector, and graphs recompiled."""

from trainperf.core.stats.reductions import Total
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, Meter, Scope, total


class GarbageCollection(Meter):
    """Time the Python garbage collector ran inside steps, in seconds, all steps; largest rank.

    Wrong where: a pause falls between steps: only those inside steps count.
    To confirm: `gc.callbacks` of your own.
    """

    name = "gc_s"
    unit = "s"
    measure = Measure.STEP_TIME
    better = "lower"
    scope = Scope.ALL
    needs = ("gc_ns",)

    def observe(self, block: StepBlock) -> Total | None:
        """Sum of the pauses."""
        pauses = total(block, "gc_ns")
        return None if pauses is None else Total(pauses.amount / 1e9, pauses.n)


class Recompiles(Meter):
    """Graphs that `torch.compile` built inside steps, all steps of the fit; largest rank.

    Wrong where: graphs are compiled between steps, in validation for instance.
    To confirm: `TORCH_LOGS=recompiles`.
    """

    name = "recompiles"
    unit = "1"
    measure = Measure.STEP_TIME
    better = "lower"
    scope = Scope.ALL
    needs = ("recompiles",)
    statistic = staticmethod(total)


METERS = (
    GarbageCollection(),
    Recompiles(),
)
