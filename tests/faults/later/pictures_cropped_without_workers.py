"""Random crops, flips and colours, picture by picture where it trains; the twin has a worker."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from faults.base import script, train
from faults.models import Classifier


SIDE, ROWS, STEPS = 64, 16, 40


class Pictures(Dataset[tuple[Tensor, int]]):
    """Forty-eight pictures in memory, over and over; no two crops are alike."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (48, 3, 160, 200)
        self._raw = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        self._draw = np.random.default_rng(0)

    def __len__(self) -> int:
        return STEPS * ROWS

    def __getitem__(self, key: int) -> tuple[Tensor, int]:
        return self._changed(self._raw[key % len(self._raw)]), key % 10

    def _changed(self, raw: Tensor) -> Tensor:
        draw = self._draw
        height, width = int(draw.integers(80, 161)), int(draw.integers(80, 201))
        top, left = int(draw.integers(161 - height)), int(draw.integers(201 - width))
        crop = raw[:, top : top + height, left : left + width].float().div(255)[None]
        picture = functional.interpolate(crop, (SIDE, SIDE), mode="bilinear", antialias=True)[0]
        if draw.random() < 0.5:
            picture = picture.flip(-1)
        picture = (picture * draw.uniform(0.8, 1.2)).clamp(0, 1)
        grey = picture.mean()
        picture = ((picture - grey) * draw.uniform(0.8, 1.2) + grey).clamp(0, 1)
        mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        return (picture - mean[:, None, None]) / deviation[:, None, None]


@script("data_wait", changes=("more_workers",))
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    workers = 1 if fixed else 0
    loader = DataLoader(
        Pictures(), batch_size=ROWS, num_workers=workers, persistent_workers=workers > 0
    )
    train(out, Classifier(nn.Sequential(*layers)), loader)
