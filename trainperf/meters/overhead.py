"""Overhead: what trainperf itself costs the loop."""

from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Meter, mean


class Overhead(Meter):
    """Host time trainperf itself takes per steady step, in seconds.

    Its own hooks and flushes as measured, plus its brackets, at what they took in their places in
    the first steps (in a shorter fit, at what they take in a row, which is less).  What the relay
    *saves* against Lightning's own brackets is not subtracted, and what our code pushes out of the
    caches is not known.

    Wrong where: the loop is another one after its first forty steps, with warmer or colder caches.
    To confirm: time the script with and without trainperf, several times, in turns.
    """

    name = "overhead_s"
    unit = "s"
    better = "lower"
    needs = ("overhead_ns",)

    def observe(self, block: StepBlock) -> Ratio | None:
        """Mean over steps."""
        spent = mean(block, "overhead_ns")
        return None if spent is None else Ratio(spent.numerator / 1e9, spent.denominator, spent.n)


METERS = (Overhead(),)
