"""H2D: how long copying the batch to the device took, how many bytes, at what rate."""

from typing import ClassVar

from trainperf.meters.base import Measure, Meter, mean, quotient, seconds, share_of_wall


class _TransferMeter(Meter):
    """One of the batch's way to the device."""

    measure = Measure.H2D
    better: ClassVar[str | None] = "lower"


class H2DTime(_TransferMeter):
    """Median device time of a step's batch transfer, between events around it, in seconds.

    Not the host's time in the transfer call, which is `phase_h2d_s`: a non-blocking copy returns
    before it is done.  On a CPU nothing is copied: not applicable.

    On an idle device it contains the launch: 17 to 23 % more than the copy itself for 19 MB, and
    for some hundred bytes the launch is nearly all of it (recorded traces of V100s, replayed).

    Wrong where: the copy is made on a stream of its own, where no event is.
    To confirm: `trainperf trace`: copies host→device.
    """

    name = "h2d_s"
    unit = "s"
    needs = ("h2d_device_ns",)
    statistic = staticmethod(seconds)


class H2DRate(_TransferMeter):
    """Bytes of the batch's tensors over the device time of their transfer, in bytes per second.

    Below the host link's rate when the copy is from pageable memory or of many small tensors.

    Wrong where: the batch is smaller than some megabytes: launching is most of its time.
    To confirm: `trainperf trace`; the link's data sheet.
    """

    name = "h2d_bytes_per_s"
    unit = "B/s"
    better = "higher"
    needs = ("h2d_device_ns", "h2d_bytes")
    statistic = staticmethod(quotient)


class H2DFraction(_TransferMeter):
    """Device time of the batch transfer as a share of step wall time.

    Wrong where: the copy overlaps computation: a share of the step is then no share of what is
    lost.
    To confirm: `trainperf try --only no_transfer SCRIPT`.
    """

    name = "h2d_fraction"
    unit = "1"
    needs = ("h2d_device_ns",)
    statistic = staticmethod(share_of_wall)


class H2DBytes(_TransferMeter):
    """Bytes of the batch's tensors per step, mean over steady steps.

    Wrong where: tensors are made on the device, which nothing copies.
    To confirm: `trainperf trace`: bytes copied.
    """

    name = "h2d_bytes"
    unit = "B"
    better = None
    needs = ("h2d_bytes",)
    statistic = staticmethod(mean)


class H2DTensors(_TransferMeter):
    """Tensors in a step's batches, mean over steady steps: many small copies are slow ones.

    Wrong where: the tensors are in a container that is not looked into.
    To confirm: count the tensors of a batch.
    """

    name = "h2d_tensors"
    unit = "1"
    needs = ("h2d_tensors",)
    statistic = staticmethod(mean)


METERS = (
    H2DTime(),
    H2DRate(),
    H2DFraction(),
    H2DBytes(),
    H2DTensors(),
)
