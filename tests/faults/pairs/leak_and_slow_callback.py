"""A callback keeps copies of all batches, and thinks about each for long."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from faults.base import ready, script, train
from faults.loops import LONG
from faults.models import WIDTH, Classifier


class Slow(Callback):
    """Keeps and sleeps.

    Args:
        healthy: Whether it does neither.
    """

    def __init__(self, *, healthy: bool) -> None:
        self._healthy = healthy
        self.seen: list[Tensor] = []

    def on_train_batch_end(
        self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", *batch: Any
    ) -> None:
        """Keep a copy of the rows."""
        if self._healthy:
            return
        self.seen.append(batch[1][0].clone())
        time.sleep(0.1)


@script("leak", "callbacks", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Classifier(), ready(LONG, WIDTH, 512), callbacks=[Slow(healthy=fixed)])
