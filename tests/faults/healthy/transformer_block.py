"""Blocks with fused attention, one activation each, a fused optimizer."""

from pathlib import Path

from torch import Tensor, nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import adamw, fused, ready


class Block(nn.Module):
    """Norm before attention and before the perceptron, a sum around each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.given = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens of the same width."""
        parts = self.given(self.norms[0](tokens)).chunk(3, dim=-1)
        query, key, value = (
            part.unflatten(-1, (self._heads, -1)).transpose(1, 2) for part in parts
        )
        tokens = tokens + self.mixed(fused(query, key, value).transpose(1, 2).flatten(2))
        result: Tensor = tokens + self.down(
            nn.functional.gelu(self.up(self.norms[1](tokens)), approximate="tanh")
        )
        return result


class Pooled(nn.Module):
    """Scores of ten classes from the mean over a sequence."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.block = Block(width, heads=4)
        self.out = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        """One block, then the mean."""
        scores: Tensor = self.out(self.block(tokens).mean(dim=1))
        return scores


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(Pooled(), adamw(fused=True)), ready(50, 128, 256, size=4))
