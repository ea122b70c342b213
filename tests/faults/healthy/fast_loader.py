"""Batches cost next to nothing, in the process that trains; two epochs of them."""

from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from faults.base import script
from faults.loads import ROWS, STEPS, WIDTH, Fields, Paced, fit, loader


@script()
def _train(out: Path, *, fixed: bool) -> None:
    rows = torch.randn(STEPS * ROWS // 2, WIDTH)
    dataset = TensorDataset(rows, torch.arange(len(rows)) % 10)
    fit(out, loader(dataset, shuffle=True), max_epochs=2, module=Fields(Paced(0.030)))
