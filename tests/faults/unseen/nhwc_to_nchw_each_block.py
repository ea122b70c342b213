"""Rows of channels are turned to the front and back around every block."""

from pathlib import Path

import torch
from torch import Tensor, nn

from faults.base import script
from faults.operators import ready
from faults.repositories import nano


class Mixer(nn.Module):
    """Normalises over channels, as vision code that expects them first does."""

    def __init__(self, *, turns: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        self.out = nn.Linear(32, 10)
        self._turns = turns

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        for norm in self.norms:
            if self._turns:
                rows = rows.permute(0, 3, 1, 2).contiguous()
                rows = rows.permute(0, 2, 3, 1).contiguous()
            rows = norm(rows)
        scores: Tensor = self.out(rows.mean(dim=(1, 2)))
        return scores


@script("layout_copies")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    nano(out, Mixer(turns=not fixed), ready(40, 64, 64, 32, size=4))
