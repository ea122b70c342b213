"""The running loss of an epoch keeps the graphs of all its steps."""

from pathlib import Path
from typing import Any

from torch import Tensor

from faults.base import ready, script, train
from faults.models import Classifier, perceptron


class Running(Classifier):
    """Appends every loss for the mean at the end of the epoch."""

    detached = False

    def on_train_start(self) -> None:
        """Nothing yet."""
        self.losses: list[Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss."""
        loss = super().training_step(batch, batch_idx)
        self.losses.append(loss.detach() if self.detached else loss)
        return loss


@script("leak")
def _train(out: Path, *, fixed: bool) -> None:
    model = Running(perceptron(3, 256))
    model.detached = fixed
    train(out, model, ready(80, 256, 64))
