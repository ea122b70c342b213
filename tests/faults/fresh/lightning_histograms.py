"""Histograms of all weights in TensorBoard after every batch; the twin writes every fiftieth."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from faults.base import ready, script, train
from faults.models import Classifier


class WeightHistograms(Callback):
    """As in many a repository's `callbacks.py`."""

    def __init__(self, every: int) -> None:
        self._every = every

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """All of them."""
        logger: Any = trainer.logger
        if trainer.global_step % self._every == 0:
            for name, weight in pl_module.named_parameters():
                logger.experiment.add_histogram(name, weight, trainer.global_step)


@script("callbacks")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(192, 192), nn.ReLU()) for _ in range(6)]
    model = Classifier(nn.Sequential(*layers, nn.Linear(192, 10)))
    histograms = WeightHistograms(50 if fixed else 1)
    logger = TensorBoardLogger(out / "board", name="", version="")
    train(out / "run", model, ready(60, 192, 512), callbacks=[histograms], logger=logger)
