"""A collection of torchmetrics is called in `training_step`; the twin calls it every fiftieth."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassCalibrationError,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)

from faults.base import ready, script, train
from faults.models import Classifier


class Watched(Classifier):
    """Computes the metrics of each batch, and adds them up for the epoch."""

    def __init__(self, body: nn.Module, *, every: int) -> None:
        super().__init__(body)
        self._every = every
        self.metrics = MetricCollection(
            {
                "accuracy": MulticlassAccuracy(10),
                "top3": MulticlassAccuracy(10, top_k=3),
                "f1": MulticlassF1Score(10),
                "confusion": MulticlassConfusionMatrix(10),
                "calibration": MulticlassCalibrationError(10),
            }
        )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss."""
        rows, labels = batch
        scores = self.body(rows)
        if batch_idx % self._every == 0:
            self.now = self.metrics(scores.detach().softmax(dim=1), labels)
        return functional.cross_entropy(scores, labels)


@script("metrics_every_batch")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(384, 384), nn.ReLU()) for _ in range(3)]
    model = Watched(nn.Sequential(*layers, nn.Linear(384, 10)), every=50 if fixed else 1)
    train(out, model, ready(50, 384, 128))
