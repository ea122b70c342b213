"""Python looks at every row of the scores and adds up those it likes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier


class Looping(Classifier):
    """Adds the largest scores to the loss, row by row or all at once."""

    def __init__(self, *, loops: bool) -> None:
        super().__init__()
        self._loops = loops

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss and a small penalty."""
        rows, labels = batch
        scores = self.body(rows)
        largest = scores.detach().amax(1)
        penalty = torch.zeros(())
        if self._loops:
            for one in largest:
                if one.item() > 0:
                    penalty = penalty + one
        else:
            penalty = largest.clamp(min=0).sum()
        return functional.cross_entropy(scores, labels) + 1e-6 * penalty


@script("hidden_syncs")
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Looping(loops=not fixed), ready(60, WIDTH))
