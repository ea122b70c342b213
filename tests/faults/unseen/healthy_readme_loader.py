"""Healthy: batches take a seventh of a millisecond to make, in steps of one."""

from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from faults.base import script
from faults.loads import Fields, Paced, fit, loader


@script()
def _train(out: Path, *, fixed: bool) -> None:
    dataset = TensorDataset(torch.randn(2560, 64), torch.arange(2560) % 10)
    fit(out, loader(dataset), module=Fields(Paced(0.0005)))
