"""Every layer copies its input to another layout and back."""

from pathlib import Path

from torch import Tensor, nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready


class Turning(nn.Module):
    """Scales the channels of sequences, whichever way they lie."""

    def __init__(self, layers: int, *, turns: bool) -> None:
        super().__init__()
        self._turns = turns
        self.scales = nn.ModuleList(nn.LayerNorm(64) for _ in range(layers))
        self.out = nn.Linear(64, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        for scale in self.scales:
            if self._turns:
                rows = rows.transpose(1, 2).contiguous()
                rows = rows.transpose(1, 2).contiguous()
            rows = scale(rows)
        scores: Tensor = self.out(rows.mean(dim=1))
        return scores


@script("layout_copies")
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(Turning(4, turns=not fixed)), ready(60, 256, 64, size=16))
