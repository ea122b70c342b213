"""minGPT's NewGELU: the formula as it stands in the paper."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.base import script
from faults.repositories import nano


def _new_gelu(x: Tensor) -> Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Perceptron(nn.Module):
    """The feed-forward part alone, wide."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(64, 1024), nn.Linear(1024, 10)
        self._fused = fused

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        hidden = self.c_fc(rows)
        active = functional.gelu(hidden, approximate="tanh") if self._fused else _new_gelu(hidden)
        scores: Tensor = self.c_proj(active)
        return scores


@script("elementwise_chain")
def _train(out: Path, *, fixed: bool) -> None:
    batch = (torch.randn(1024, 64), torch.randint(0, 10, (1024,)))
    nano(out, Perceptron(fused=fixed), [batch] * 40)
