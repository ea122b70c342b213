"""All-reduce tail: how long a step still waited for gradients after computing the last one."""

from trainperf.meters.base import Measure, MeterEntry, seconds, share_of_wall


METERS = (
    MeterEntry(
        name="allreduce_tail_s",
        unit="s",
        about="""Median time from the last gradient being ready to backward having returned, in
        seconds.

        On the compute stream (CUDA) or the host (CPU), synchronising micro-batches only; the wait
        for slower ranks is in it, and so is DDP's own finalisation.  Never negative; a trace's tail
        is kernel-only and signed.  DDP only; without it not applicable.

        Wrong where: a rank is late: its wait is in everybody else's tail.
        To confirm: the finding `straggler`; `trainperf trace` of all ranks.
        """,
        measure=Measure.TAIL,
        better="lower",
        needs=("tail_ns",),
        statistic=seconds,
    ),
    MeterEntry(
        name="allreduce_tail_fraction",
        unit="1",
        about="""The all-reduce tail as a share of step wall time, a quotient of sums over steady
        steps.

        Wrong where: as `allreduce_tail_s`: waiting for a late rank is in it.
        To confirm: `trainperf try --only no_reduction SCRIPT`.
        """,
        measure=Measure.TAIL,
        better="lower",
        needs=("tail_ns",),
        statistic=share_of_wall,
    ),
)
