"""Every other step has the collector look through everything that was ever made."""

import gc
from pathlib import Path
from typing import Any

from torch import Tensor

from faults.base import ready, script, train
from faults.models import WIDTH, Classifier


class Collecting(Classifier):
    """Holds many small objects, and may look for garbage among them."""

    def __init__(self, *, collects: bool, held: int = 300_000) -> None:
        super().__init__()
        self._collects = collects
        self._held = [[number] for number in range(held)]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss."""
        loss = super().training_step(batch, batch_idx)
        if self._collects and batch_idx % 2:
            gc.collect()
        return loss


@script("garbage")
def _train(out: Path, *, fixed: bool) -> None:
    gc.freeze()  # what the process has made so far is not looked through
    try:
        train(out, Collecting(collects=not fixed), ready(80, WIDTH))
    finally:
        gc.unfreeze()
