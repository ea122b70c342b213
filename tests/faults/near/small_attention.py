"""Eager attention over short sequences, beside products that take many times as long."""

from pathlib import Path

from torch import Tensor, nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import Attention, eager, ready


class Wide(nn.Module):
    """Two large products before the attention."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 2048), nn.Linear(2048, 64))
        self.mix = Attention(eager)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of ten classes for each sequence."""
        scores: Tensor = self.mix(self.layers(tokens))
        return scores


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(Wide()), ready(50, 32, 64, size=8))
