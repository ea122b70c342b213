"""Models that spend their step on large products: by themselves nothing is wrong with them."""

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.stand_in import compute


WIDTH = 512


class Classifier(pl.LightningModule):
    """Any body that ends in ten scores, under cross entropy and a fused optimizer.

    Args:
        body: From rows to scores.
        optimizer: Makes the optimizer of its parameters.
    """

    def __init__(
        self,
        body: nn.Module | None = None,
        optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    ) -> None:
        super().__init__()
        self.body = perceptron() if body is None else body
        self._optimizer = optimizer or (lambda own: torch.optim.SGD(own, 0.01, fused=True))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        del batch_idx
        rows, labels = batch
        return functional.cross_entropy(self.body(rows), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The one asked for."""
        return self._optimizer(self.parameters())


class Slow(Classifier):
    """A classifier whose step takes a tenth of a second."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss, later."""
        compute(0.095)
        return super().training_step(batch, batch_idx)


class Validated(Classifier):
    """A classifier that is validated too."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """The same without learning."""
        self.training_step(batch, batch_idx)


def perceptron(layers: int = 3, width: int = WIDTH) -> nn.Sequential:
    """Some milliseconds of products a step, for rows of that width in batches of 256."""
    hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, 10))
