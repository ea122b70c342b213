"""Convolutions of many channels, each followed by an activation."""

from pathlib import Path

from torch import nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready


@script()
def _train(out: Path, *, fixed: bool) -> None:
    layers = [
        part
        for _ in range(2)
        for part in (nn.Conv2d(128, 128, 3, padding=1, bias=False), nn.ReLU(inplace=True))
    ]
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    train(out, Classifier(body), ready(50, 128, 8, 8, size=4))
