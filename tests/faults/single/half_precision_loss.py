"""The whole model is bf16, and so is the loss that it learns from."""

from pathlib import Path

import torch
from torch import Tensor, nn

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier, perceptron


class Half(nn.Module):
    """Scores in bf16, or rounded from it."""

    def __init__(self, *, loss_in_fp32: bool) -> None:
        super().__init__()
        self._body = perceptron().to(torch.bfloat16)
        self._loss_in_fp32 = loss_in_fp32

    def forward(self, rows: Tensor) -> Tensor:
        """Of the rows."""
        scores: Tensor = self._body(rows.bfloat16())
        return scores.float() if self._loss_in_fp32 else scores


@script("half_sensitive")
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(Half(loss_in_fp32=fixed)), ready(60, WIDTH))
