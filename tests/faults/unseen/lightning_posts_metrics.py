"""A hook posts every loss to a server and waits for the answer."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from faults.base import script
from faults.loads import Samples, fit, loader


class Posted(Callback):
    """Seven milliseconds to the server and back."""

    def __init__(self, every: int) -> None:
        self._every = every

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """One request."""
        if batch_idx % self._every == 0:
            time.sleep(0.007)


@script("callbacks")
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(Samples()), callbacks=[Posted(50 if fixed else 1)])
