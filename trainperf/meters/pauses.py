"""Pauses: time lost to the garbage collector, and graphs recompiled."""

from trainperf.meters.base import Measure, MeterEntry, Scope, total


METERS = (
    MeterEntry(
        name="gc_s",
        unit="s",
        about="""Time the Python garbage collector ran inside steps, in seconds, all steps; largest
        rank.

        Wrong where: a pause falls between steps: only those inside steps count.
        To confirm: `gc.callbacks` of your own.
        """,
        measure=Measure.STEP_TIME,
        better="lower",
        scope=Scope.ALL,
        needs=("gc_ns",),
        statistic=total,
    ),
    MeterEntry(
        name="recompiles",
        unit="1",
        about="""Graphs that `torch.compile` built inside steps, all steps of the fit; largest rank.

        Wrong where: graphs are compiled between steps, in validation for instance.
        To confirm: `TORCH_LOGS=recompiles`.
        """,
        measure=Measure.STEP_TIME,
        better="lower",
        scope=Scope.ALL,
        needs=("recompiles",),
        statistic=total,
    ),
)
