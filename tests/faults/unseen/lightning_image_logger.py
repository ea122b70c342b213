"""A callback saves the batch as an image grid after every batch."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
from lightning.pytorch.callbacks import Callback

from faults.base import script
from faults.loads import Samples, fit, loader


class ImageLogger(Callback):
    """Writes what the model saw."""

    def __init__(self, out: Path, every: int) -> None:
        self._out, self._every = out, every

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A compressed file of a grid."""
        if batch_idx % self._every == 0:
            grid = np.kron(batch[0].numpy(), np.ones((8, 8), np.float32))
            self._out.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(self._out / "grid.npz", grid=grid)


@script("callbacks")
def _train(out: Path, *, fixed: bool) -> None:
    logger = ImageLogger(out / "images", every=1000 if fixed else 1)
    fit(out, loader(Samples()), callbacks=[logger])
