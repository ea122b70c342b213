"""Mish as `x * tanh(softplus(x))` after each layer of a detector's backbone; twin: one operator."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready


class Mish(nn.Module):
    """By its formula, or as torch has it."""

    def __init__(self, *, single: bool) -> None:
        super().__init__()
        self._single = single

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return functional.mish(x) if self._single else x * torch.tanh(functional.softplus(x))


def _layer(into: int, out: int, *, stride: int, single: bool) -> nn.Sequential:
    """A depthwise convolution and one of single pixels."""
    return nn.Sequential(
        nn.Conv2d(into, into, 3, stride=stride, padding=1, groups=into, bias=False),
        nn.BatchNorm2d(into),
        Mish(single=single),
        nn.Conv2d(into, out, 1, bias=False),
        nn.BatchNorm2d(out),
        Mish(single=single),
    )


@script("elementwise_chain")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        Mish(single=fixed),
        _layer(16, 24, stride=1, single=fixed),
        _layer(24, 32, stride=2, single=fixed),
        _layer(32, 32, stride=1, single=fixed),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    train(out, Classifier(backbone), ready(40, 3, 64, 64, size=8))
