"""Every step's loss map is kept for a report, with the graph that made it."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier, perceptron


class Reconstruction(Classifier):
    """Learns to return what it is given.

    Args:
        detached: Whether what it keeps is only numbers.
    """

    def __init__(self, *, detached: bool) -> None:
        super().__init__(nn.Sequential(*perceptron(2)[:-1]))
        self._detached = detached
        self.maps: list[Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The mean square error; its map is kept."""
        rows, _ = batch
        errors = (self.body(rows) - rows) ** 2
        self.maps.append(errors.detach().mean(dim=1) if self._detached else errors)
        return errors.mean()


@script("leak")
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Reconstruction(detached=fixed), ready(80, WIDTH, 512))
