"""H2D: how long copying the batch to the device took, how many bytes, at what rate."""

from trainperf.meters.base import Measure, MeterEntry, mean, quotient, seconds, share_of_wall


METERS = (
    MeterEntry(
        name="h2d_s",
        unit="s",
        about="""Median device time of a step's batch transfer, between events around it, in
        seconds.

        Not the host's time in the transfer call, which is `phase_h2d_s`: a non-blocking copy
        returns before it is done.  On a CPU nothing is copied: not applicable.

        On an idle device it contains the launch: 17 to 23 % more than the copy itself for 19 MB,
        and for some hundred bytes the launch is nearly all of it (recorded traces of V100s,
        replayed).

        Wrong where: the copy is made on a stream of its own, where no event is.
        To confirm: `trainperf trace`: copies host→device.
        """,
        measure=Measure.H2D,
        better="lower",
        needs=("h2d_device_ns",),
        statistic=seconds,
    ),
    MeterEntry(
        name="h2d_bytes_per_s",
        unit="B/s",
        about="""Bytes of the batch's tensors over the device time of their transfer, in bytes per
        second.

        Below the host link's rate when the copy is from pageable memory or of many small tensors.

        Wrong where: the batch is smaller than some megabytes: launching is most of its time.
        To confirm: `trainperf trace`; the link's data sheet.
        """,
        measure=Measure.H2D,
        better="higher",
        needs=("h2d_device_ns", "h2d_bytes"),
        statistic=quotient,
    ),
    MeterEntry(
        name="h2d_fraction",
        unit="1",
        about="""Device time of the batch transfer as a share of step wall time.

        Wrong where: the copy overlaps computation: a share of the step is then no share of what is
        lost.
        To confirm: `trainperf try --only no_transfer SCRIPT`.
        """,
        measure=Measure.H2D,
        better="lower",
        needs=("h2d_device_ns",),
        statistic=share_of_wall,
    ),
    MeterEntry(
        name="h2d_bytes",
        unit="B",
        about="""Bytes of the batch's tensors per step, mean over steady steps.

        Wrong where: tensors are made on the device, which nothing copies.
        To confirm: `trainperf trace`: bytes copied.
        """,
        measure=Measure.H2D,
        needs=("h2d_bytes",),
        statistic=mean,
    ),
    MeterEntry(
        name="h2d_tensors",
        unit="1",
        about="""Tensors in a step's batches, mean over steady steps: many small copies are slow
        ones.

        Wrong where: the tensors are in a container that is not looked into.
        To confirm: count the tensors of a batch.
        """,
        measure=Measure.H2D,
        better="lower",
        needs=("h2d_tensors",),
        statistic=mean,
    ),
)
