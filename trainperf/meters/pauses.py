"""Pauses: time lost to the garbage collector, graphs recompiled, and what trainperf costs."""

from trainperf.core.stats.reductions import Ratio, Total
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Meter, Scope
from trainperf.meters.folds import mean, total


class GarbageCollection(Meter):
    """Time the Python garbage collector ran inside steps, in seconds, all steps; largest rank."""

    name = "gc_s"
    unit = "s"
    better = "lower"
    scope = Scope.ALL
    needs = ("gc_ns",)

    def observe(self, block: StepBlock) -> Total | None:
        """Sum of the pauses."""
        pauses = total(block, "gc_ns")
        return None if pauses is None else Total(pauses.amount / 1e9, pauses.n)


class Recompiles(Meter):
    """Graphs that `torch.compile` built inside steps, all steps of the fit; largest rank."""

    name = "recompiles"
    unit = "1"
    better = "lower"
    scope = Scope.ALL
    needs = ("recompiles",)

    def observe(self, block: StepBlock) -> Total | None:
        """Number of graphs."""
        return total(block, "recompiles")


class Overhead(Meter):
    """Host time trainperf itself takes per steady step, in seconds.

    Its own hooks and flushes as measured, plus each bracket at a cost calibrated at the start.
    What the relay *saves* against Lightning's own brackets is not subtracted.
    """

    name = "overhead_s"
    unit = "s"
    better = "lower"
    needs = ("overhead_ns",)

    def observe(self, block: StepBlock) -> Ratio | None:
        """Mean over steps."""
        spent = mean(block, "overhead_ns")
        return None if spent is None else Ratio(spent.numerator / 1e9, spent.denominator, spent.n)
