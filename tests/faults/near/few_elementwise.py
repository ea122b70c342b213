"""A formula of three elementwise operators between products that take most of the step."""

from pathlib import Path

from torch import Tensor, nn

from faults.base import script, train
from faults.models import WIDTH, Classifier
from faults.operators import ready


class Gated(nn.Module):
    """Three layers, after the first of which something is computed by a formula."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.out = nn.Linear(WIDTH, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of ten classes."""
        for number, layer in enumerate(self.layers):
            rows = layer(rows)
            if not number:
                rows = rows * rows.tanh() + rows
        scores: Tensor = self.out(rows)
        return scores


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(Gated()), ready(50, WIDTH, size=128))
