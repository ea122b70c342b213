"""Latency: how long a batch of requests takes to be answered, in an inference loop."""

from functools import partial

from trainperf.meters.base import Measure, MeterEntry, seconds


METERS = (
    MeterEntry(
        name="latency_s",
        unit="s",
        about="""Median time from a batch having come to `end_step`, host clock, steady steps.

        Without the wait for the batch: `step_s` has that too, and is what throughput follows from.
        It is no queueing time: how long a request waited before it was in a batch, the loop cannot
        see.

        Wrong where: the answer is still being computed on a device when `end_step` is called: read
        it before, as whoever sends it does.
        To confirm: a stopwatch around the answer, the device idle at both ends.
        """,
        title="latency p50",
        measure=Measure.STEP_TIME,
        better="lower",
        needs=("latency_ns",),
        statistic=seconds,
    ),
    MeterEntry(
        name="latency_p95_s",
        unit="s",
        about="""Latency that 95 % of the steady steps stay below.

        Wrong where: there are fewer than some hundreds of steady steps.
        To confirm: the step times in `report.html`.
        """,
        title="p95",
        measure=Measure.STEP_TIME,
        better="lower",
        needs=("latency_ns",),
        statistic=partial(seconds, percentile=95.0),
    ),
    MeterEntry(
        name="latency_p99_s",
        unit="s",
        about="""Latency that 99 % of the steady steps stay below.

        Wrong where: there are fewer than a thousand steady steps.
        To confirm: the step times in `report.html`.
        """,
        title="p99",
        measure=Measure.STEP_TIME,
        better="lower",
        needs=("latency_ns",),
        statistic=partial(seconds, percentile=99.0),
    ),
)
