"""Training that nobody has prepared, as trials see it: in a process that is thrown away.

Model, optimizer and the process are at hand; the batches are not, for nothing stands between the
loop and its loader.  So what needs batches is not tried, and losses are not compared.
"""

from collections.abc import Callable

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from trainperf.core.loop_kind import OUTSIDE
from trainperf.loop.fit import stateful
from trainperf.recording.probes.selection import FitObjects
from trainperf.trials.training import Training, outermost_layers


class OutsideTraining(Training):
    """The training of a loop that is recorded from outside.

    Args:
        objects: What it trains.
        module: Its module, or several.
        over: Called when all has been tried.
    """

    kind = OUTSIDE

    def __init__(self, objects: FitObjects, module: nn.Module, over: Callable[[], object]) -> None:
        others = stateful(objects)
        super().__init__(module, objects.optimizers, objects.device, others=others)
        self._over = over

    @override
    def end(self) -> None:
        self._over()

    @override
    def parts_to_compile(self) -> list[nn.Module]:
        """Not the model itself, whose hooks tell forward from the rest."""
        module = self.module
        return outermost_layers(
            module.module if isinstance(module, DistributedDataParallel) else module
        )
