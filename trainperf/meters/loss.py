"""Loss: what the model had learned by the latest step, as the identity of the run."""

from trainperf.meters.base import Measure, MeterEntry, Scope, latest


METERS = (
    MeterEntry(
        name="loss",
        unit="1",
        about="""The training loss of the latest step, this rank's last micro-batch; mean over
        ranks.

        On a host it is read at once; on a device it is copied there, and read when the device has
        passed it.  Undivided by gradient accumulation.

        Wrong where: it is compared at equal steps with other batch sizes.
        To confirm: `trainperf compare`, which compares at equal work.
        """,
        measure=Measure.LOSS,
        better="lower",
        scope=Scope.ALL,
        needs=("loss",),
        statistic=latest,
    ),
)
