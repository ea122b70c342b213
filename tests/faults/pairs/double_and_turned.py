"""Everything in double precision, and layers that copy their input to another layout and back."""

from pathlib import Path

import torch
from torch import Tensor, nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready


class Turning(nn.Module):
    """Products of sequences, between two copies or none."""

    def __init__(self, *, turns: bool) -> None:
        super().__init__()
        self._turns = turns
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(3))
        self.out = nn.Linear(128, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        for layer in self.layers:
            if self._turns:
                for _ in range(2):
                    rows = rows.transpose(1, 2).contiguous()
                    rows = rows.transpose(1, 2).contiguous()
            rows = layer(rows)
        scores: Tensor = self.out(rows.mean(dim=1))
        return scores


@script("matmul_precision", "layout_copies")
def _train(out: Path, *, fixed: bool) -> None:
    dtype = torch.float32 if fixed else torch.float64
    body = Turning(turns=not fixed).to(dtype)
    train(out, Classifier(body), ready(50, 128, 128, size=8, dtype=dtype))
