"""A recurrence in Python: some operators on a few numbers for every moment of a sequence."""

from pathlib import Path

import torch
from torch import Tensor, nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready


class Recurrence(nn.Module):
    """An exponential mean over time, as a loop or as one product with its weights."""

    def __init__(self, length: int, *, loops: bool) -> None:
        super().__init__()
        self._loops = loops
        self.out = nn.Linear(16, 10)
        weights = 0.1 * 0.9 ** torch.arange(length - 1, -1, -1)
        self.register_buffer("weights", weights)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        scores: Tensor = self.out(self._mean(rows))
        return scores

    def _mean(self, rows: Tensor) -> Tensor:
        if not self._loops:
            return torch.einsum("blw,l->bw", rows, self.weights)
        state = torch.zeros_like(rows[:, 0])
        for now in rows.unbind(dim=1):
            state = state * 0.9 + now * 0.1
        return state


@script("launch_bound")
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(Recurrence(200, loops=not fixed)), ready(60, 200, 16, size=4))
