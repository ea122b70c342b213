"""A callback keeps the scores of every batch and never empties its cache."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from faults.base import ready, script, train
from faults.loops import LONG
from faults.models import WIDTH, Slow


class Scores(Callback):
    """Keeps what it is to compute a metric from, all of it or the last.

    Args:
        bounded: Whether an old batch makes room for a new one.
    """

    def __init__(self, *, bounded: bool) -> None:
        self._bounded = bounded
        self.cache: dict[int, Tensor] = {}

    def on_train_batch_end(
        self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", *batch: Any
    ) -> None:
        """Keep copies of the rows, detached."""
        (rows, _), number = batch[1], batch[2]
        if self._bounded:
            self.cache.clear()
        self.cache[number] = torch.clone(rows.detach())


@script("leak", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Slow(), ready(LONG, WIDTH, 512), callbacks=[Scores(bounded=fixed)])
