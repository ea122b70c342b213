"""A moving average of the weights through deep copies of the state dict, every batch."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from faults.base import ready, script, train
from faults.models import Classifier, perceptron


class Average(Callback):
    """0.999 of what it was, and 0.001 of what it is."""

    def __init__(self, *, copies: bool) -> None:
        self._copies = copies
        self._mean: dict[str, torch.Tensor] = {}

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """One update of the average."""
        now = pl_module.state_dict()
        if not self._mean:
            self._mean = deepcopy(now)
        if self._copies:
            old = deepcopy(self._mean)
            for name, weight in deepcopy(now).items():
                self._mean[name] = 0.999 * old[name] + 0.001 * weight
        elif batch_idx % 20 == 0:
            torch._foreach_lerp_(list(self._mean.values()), list(now.values()), 0.02)


@script("callbacks")
def _train(out: Path, *, fixed: bool) -> None:
    model = Classifier(perceptron(6, 384))
    train(out, model, ready(60, 384, 64), callbacks=[Average(copies=not fixed)])
