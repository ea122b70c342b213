"""Features that come from a data frame stay float64, and so does the model."""

from pathlib import Path

import torch

from faults.base import script
from faults.models import perceptron
from faults.operators import ready
from faults.repositories import nano


@script("matmul_precision")
def _train(out: Path, *, fixed: bool) -> None:
    dtype = torch.float32 if fixed else torch.float64
    nano(out, perceptron(3, 384).to(dtype), ready(40, 384, size=256, dtype=dtype))
