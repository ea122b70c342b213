"""Pictures are scaled and letterboxed with NumPy as they are asked for; the twin keeps them."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from faults.base import script, train
from faults.models import Classifier


SIDE, ROWS = 48, 16


class Pictures(Dataset[Any]):
    """Sixty-four pictures, over and over."""

    def __init__(self, *, kept: bool) -> None:
        draw = np.random.default_rng(0)
        self._raw = [draw.integers(0, 255, (180, 240, 3), np.uint8) for _ in range(64)]
        self._kept = [_letterbox(raw) for raw in self._raw] if kept else None

    def __len__(self) -> int:
        return 60 * ROWS

    def __getitem__(self, key: int) -> Any:
        number = key % 64
        picture = self._kept[number] if self._kept else _letterbox(self._raw[number])
        return picture, key % 10


def _letterbox(raw: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Bilinear, in double precision, with grey bars."""
    height, width = SIDE * raw.shape[0] // raw.shape[1], SIDE
    y, x = np.linspace(0, raw.shape[0] - 2, height), np.linspace(0, raw.shape[1] - 2, width)
    top, left = y.astype(int), x.astype(int)
    down, right = (y - top)[:, None, None], (x - left)[None, :, None]
    rows = raw[top] * (1 - down) + raw[top + 1] * down
    scaled = rows[:, left] * (1 - right) + rows[:, left + 1] * right
    boxed = np.full((SIDE, SIDE, 3), 114.0)
    boxed[(SIDE - height) // 2 :][:height] = scaled
    return torch.from_numpy(boxed / 255).permute(2, 0, 1).float()


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 10),
    )
    loader = DataLoader(Pictures(kept=fixed), batch_size=ROWS)
    train(out, Classifier(nn.Sequential(*layers)), loader)
