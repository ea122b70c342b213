"""Loss: what the model had learned by the latest step, as the identity of the run."""

from trainperf.core.stats.reductions import Last
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, Meter, Scope
from trainperf.meters.folds import latest


class Loss(Meter):
    """The training loss of the latest step, this rank's last micro-batch; mean over ranks.

    On a host it is read at once; on a device it is copied there, and read when the device has
    passed it.  Undivided by gradient accumulation.
    """

    name = "loss"
    unit = "1"
    measure = Measure.LOSS
    better = "lower"
    scope = Scope.ALL
    needs = ("loss",)

    def observe(self, block: StepBlock) -> Last | None:
        """The latest value in the block."""
        return latest(block, "loss")


METERS = (Loss(),)
