"""An LSTM as a Python loop over its cell, as in many tutorials."""

from pathlib import Path

import torch
from torch import Tensor, nn

from faults.base import script
from faults.operators import ready
from faults.repositories import nano


class Reader(nn.Module):
    """Scores of what it has read last."""

    def __init__(self, *, loops: bool) -> None:
        super().__init__()
        self.whole = nn.LSTM(16, 32, batch_first=True)
        self.cell = nn.LSTMCell(16, 32)
        self.out = nn.Linear(32, 10)
        self._loops = loops

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        scores: Tensor = self.out(self._read(rows) if self._loops else self.whole(rows)[0][:, -1])
        return scores

    def _read(self, rows: Tensor) -> Tensor:
        state = (torch.zeros(len(rows), 32), torch.zeros(len(rows), 32))
        for moment in range(rows.shape[1]):
            state = self.cell(rows[:, moment], state)
        return state[0]


@script("launch_bound")
def _train(out: Path, *, fixed: bool) -> None:
    nano(out, Reader(loops=not fixed), ready(40, 120, 16, size=8))
