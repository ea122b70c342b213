"""A mask of truth values is converted to numbers in every step, for every layer."""

from pathlib import Path

import torch
from torch import Tensor, nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready


class Masked(nn.Module):
    """Products with a mask that is kept as truth values or as numbers."""

    def __init__(self, layers: int, *, converts: bool) -> None:
        super().__init__()
        self._layers = layers
        mask = torch.ones(512, 512, dtype=torch.bool).tril()
        self.register_buffer("mask", mask if converts else mask.float())
        self.into = nn.Linear(512, 512)
        self.out = nn.Linear(512, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        rows = self.into(rows)
        for _ in range(self._layers):
            rows = functional_mix(rows, self.mask)
        scores: Tensor = self.out(rows)
        return scores


def functional_mix(rows: Tensor, mask: Tensor) -> Tensor:
    """A causal mean."""
    return rows @ mask.to(rows.dtype) / mask.shape[0]


@script("autocast_casts")
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(Masked(8, converts=not fixed)), ready(60, 512, size=16))
