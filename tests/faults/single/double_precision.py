"""Batches from numpy are float64, and the model was made to fit."""

from pathlib import Path

import torch

from faults.base import script, train
from faults.models import WIDTH, Classifier
from faults.operators import ready


@script("matmul_precision")
def _train(out: Path, *, fixed: bool) -> None:
    dtype = torch.float32 if fixed else torch.float64
    train(out, Classifier().to(dtype), ready(60, WIDTH, size=128, dtype=dtype))
