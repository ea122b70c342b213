"""Batches of one row through many narrow layers, each followed by a norm and an activation."""

from pathlib import Path

from torch import nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready


def _body(layers: int) -> nn.Sequential:
    parts = [
        part
        for _ in range(layers)
        for part in (nn.Linear(16, 16), nn.LayerNorm(16), nn.Tanh(), nn.Softplus())
    ]
    return nn.Sequential(*parts, nn.Linear(16, 10))


@script("launch_bound", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    # As many samples, and so as many steps fewer: the twin does other work per step.
    size = 32 if fixed else 1
    train(out, Classifier(_body(40)), ready(60, 16, size=size))
