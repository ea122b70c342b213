"""A callback keeps mean and spread of every weight and gradient, after every batch."""

from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from faults.base import ready, script, train
from faults.models import Classifier, perceptron


class Statistics(Callback):
    """The latest of them by the name of the parameter."""

    def __init__(self, every: int) -> None:
        self._every = every
        self.latest: dict[str, tuple[Tensor, Tensor]] = {}

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Of the weights as they are now."""
        if batch_idx % self._every:
            return
        for name, weight in pl_module.named_parameters():
            self.latest[name] = weight.detach().mean(), weight.detach().std()
            if weight.grad is not None:
                self.latest[f"{name}.grad"] = weight.grad.mean(), weight.grad.std()


@script("callbacks")
def _train(out: Path, *, fixed: bool) -> None:
    callbacks = [Statistics(50 if fixed else 1)]
    train(out, Classifier(perceptron(8, 256)), ready(60, 256, 64), callbacks=callbacks)
