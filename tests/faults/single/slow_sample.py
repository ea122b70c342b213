"""Samples take long to make, in the process that trains."""

import time
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from faults.base import script, train
from faults.models import WIDTH, Classifier


class Slow(Dataset[tuple[Tensor, int]]):
    """Sleeps over every sample."""

    def __init__(self, sample_s: float) -> None:
        self._sample_s = sample_s
        self._rows = torch.randn(256, WIDTH)

    def __len__(self) -> int:
        return 256 * 60

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        time.sleep(self._sample_s)
        return self._rows[number % 256], number % 10


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    dataset = Slow(0.0 if fixed else 100e-6)
    train(out, Classifier(), DataLoader(dataset, batch_size=256))
