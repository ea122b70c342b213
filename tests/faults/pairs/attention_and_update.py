"""Attention that keeps its scores, and an update of many tensors one after the other."""

from pathlib import Path

from torch import Tensor, nn

from faults.base import script, train
from faults.models import Classifier
from faults.operators import Attention, adamw, eager, fused, ready


class Deep(nn.Module):
    """Attention behind a module with many small parameters."""

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self.mix = Attention(eager if keeps else fused, heads=8)
        self.scales = nn.ParameterList(nn.Parameter(Tensor([1.0])) for _ in range(250))

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of ten classes for each sequence."""
        scale = nn.utils.parameters_to_vector(self.scales).mean()
        scores: Tensor = self.mix(tokens) * scale
        return scores


@script("attention", "optimizer_not_fused")
def _train(out: Path, *, fixed: bool) -> None:
    optimizer = adamw(fused=True) if fixed else adamw(fused=False, foreach=False)
    train(out, Classifier(Deep(keeps=not fixed), optimizer), ready(40, 192, 64, size=4))
