"""An average of the weights is kept beside them from the third step on: a jump, and no leak."""

import copy
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier


class Average(Callback):
    """Exponential moving average of the weights, every fourth step."""

    def __init__(self) -> None:
        self.kept: nn.Module | None = None

    def on_train_batch_end(
        self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", *batch: Any
    ) -> None:
        """Move the average."""
        if self.kept is None:
            self.kept = copy.deepcopy(pl_module.get_submodule("body"))
        if trainer.global_step % 4:
            return
        with torch.no_grad():
            now = pl_module.get_submodule("body").parameters()
            torch._foreach_lerp_(list(self.kept.parameters()), list(now), 0.1)


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(), ready(80, WIDTH, 512), callbacks=[Average()])
