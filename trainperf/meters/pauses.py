"""Pauses: time lost to the garbage collector, and graphs recompiled."""

from trainperf.meters.base import Measure, Meter, Scope, total


class _Pause(Meter):
    """One inside steps, of which less is better."""

    measure = Measure.STEP_TIME
    better = "lower"
    scope = Scope.ALL
    statistic = staticmethod(total)


class GarbageCollection(_Pause):
    """Time the Python garbage collector ran inside steps, in seconds, all steps; largest rank.

    Wrong where: a pause falls between steps: only those inside steps count.
    To confirm: `gc.callbacks` of your own.
    """

    name = "gc_s"
    unit = "s"
    needs = ("gc_ns",)


class Recompiles(_Pause):
    """Graphs that `torch.compile` built inside steps, all steps of the fit; largest rank.

    Wrong where: graphs are compiled between steps, in validation for instance.
    To confirm: `TORCH_LOGS=recompiles`.
    """

    name = "recompiles"
    unit = "1"
    needs = ("recompiles",)


METERS = (
    GarbageCollection(),
    Recompiles(),
)
