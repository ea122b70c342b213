"""Latency: how long a batch of requests takes to be answered, in an inference loop."""

from trainperf.core.stats.quantiles import Distribution
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, Meter, seconds


class Latency(Meter):
    """Median time from a batch having come to `end_step`, host clock, steady steps.

    Without the wait for the batch: `step_s` has that too, and is what throughput follows from.  It
    is no queueing time: how long a request waited before it was in a batch, the loop cannot see.

    Wrong where: the answer is still being computed on a device when `end_step` is called: read it
    before, as whoever sends it does.
    To confirm: a stopwatch around the answer, the device idle at both ends.
    """

    name = "latency_s"
    unit = "s"
    title = "latency p50"
    measure = Measure.STEP_TIME
    better = "lower"
    needs = ("latency_ns",)
    percentile = 50.0

    def observe(self, block: StepBlock) -> Distribution | None:
        """Distribution of the latencies, read at this meter's percentile."""
        latencies = seconds(block, "latency_ns")
        return None if latencies is None else latencies.at(self.percentile)


class LatencyP95(Latency):
    """Latency that 95 % of the steady steps stay below.

    Wrong where: there are fewer than some hundreds of steady steps.
    To confirm: the step times in `report.html`.
    """

    name = "latency_p95_s"
    title = "p95"
    percentile = 95.0


class LatencyP99(Latency):
    """Latency that 99 % of the steady steps stay below.

    Wrong where: there are fewer than a thousand steady steps.
    To confirm: the step times in `report.html`.
    """

    name = "latency_p99_s"
    title = "p99"
    percentile = 99.0


METERS = (
    Latency(),
    LatencyP95(),
    LatencyP99(),
)
