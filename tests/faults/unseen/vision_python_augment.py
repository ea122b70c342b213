"""Random crops and flips pixel by pixel in Python, where one slice would do."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from faults.base import script
from faults.loads import ROWS, STEPS, fit, loader


class Images(Dataset[Any]):
    """Squares of eight pixels out of larger ones."""

    def __init__(self, *, slices: bool) -> None:
        self._pixels = [[float(row * 16 + column) for column in range(16)] for row in range(16)]
        self._image = torch.tensor(self._pixels)
        self._slices = slices

    def __len__(self) -> int:
        return STEPS * ROWS

    def __getitem__(self, key: int) -> Any:
        top, left = torch.randint(0, 8, (2,)).tolist()
        if self._slices:
            return self._image[top : top + 8, left : left + 8].flatten(), key % 10
        crop = torch.zeros(8, 8)
        for row in range(8):
            for column in range(8):
                crop[row, column] = self._pixels[top + row][left + column] / 255
        return crop.flatten(), key % 10


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(Images(slices=fixed)))
