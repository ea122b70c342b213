"""Slow samples, and a validation after every fifth batch."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from faults.base import script
from faults.loads import AtOnce, Fields, Nap, Paced, Samples, fit, loader


class Validated(Fields):
    """Takes as long over a batch of validation."""

    def val_dataloader(self) -> Any:
        """Six batches."""
        return loader(Samples(steps=6))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Without learning."""
        self.training_step(batch, batch_idx)


@script("data_wait", "validation", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    module: pl.LightningModule = Validated(Paced())
    dataset = AtOnce(Nap(0.0 if fixed else 0.010))
    fit(out, loader(dataset), module=module, val_check_interval=60 if fixed else 4)
