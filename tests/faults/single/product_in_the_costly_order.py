"""A chain of three matrices, in the order that makes a large one of two narrow ones first.

Nothing is said of an order of products: what is expected is that nothing else is accused for it.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready


class Mixing(nn.Module):
    """Positions of a sequence, mixed by how alike they are, without a softmax.

    Args:
        costly: Whether a weight for each two positions is made.
    """

    def __init__(self, *, costly: bool) -> None:
        super().__init__()
        self._costly = costly
        self.keys, self.out = nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        keys: Tensor = self.keys(rows)
        turned = keys.transpose(1, 2)
        if self._costly:
            mixed = (rows @ turned / rows.shape[1]) @ keys
        else:
            mixed = rows @ (turned @ keys / rows.shape[1])
        scores: Tensor = self.out(torch.tanh(mixed).mean(1))
        return scores


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(Mixing(costly=not fixed)), ready(60, 512, 32, size=8))
