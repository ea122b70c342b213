"""The loss of every step is kept as a tensor without its graph: some hundred bytes a step."""

from pathlib import Path
from typing import Any

from torch import Tensor

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier


class Keeping(Classifier):
    """Remembers its losses."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss; a copy of it is kept."""
        loss = super().training_step(batch, batch_idx)
        self.losses.append(loss.detach())
        return loss


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Keeping(), ready(80, WIDTH, 512))
