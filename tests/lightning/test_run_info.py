"""What the Trainer tells about a fit before its first step."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from support.fits import Loader, Model, Validated
from torch.utils.data import DataLoader

from trainperf.lightning.run_info import period, validation


class Periods(pl.Callback):
    """Keeps the period, as it is known when the fit begins."""

    batches = -1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """As the session does it."""
        del pl_module
        self.batches = period(trainer)


@pytest.mark.parametrize(
    ("model", "options", "batches"),
    [
        (Model, {"max_epochs": 1}, 0),
        (Model, {"max_epochs": 3}, 8),
        (Validated, {"max_epochs": 1, "val_check_interval": 4}, 8),
        (Validated, {"max_epochs": 1, "val_check_interval": 4, "check_val_every_n_epoch": None}, 4),
        (Validated, {"max_epochs": 3, "check_val_every_n_epoch": 2}, 16),
        (Validated, {"max_epochs": 3, "limit_val_batches": 0}, 8),
    ],
)
def test_validation_or_an_epoch_comes_back_after_so_many_batches(
    tmp_path: Path, model: type[pl.LightningModule], options: dict[str, Any], batches: int
) -> None:
    """The longer of the two; an epoch only where there are several."""
    kept = Periods()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        accelerator="cpu", default_root_dir=tmp_path, callbacks=[kept], **quiet, **options
    )
    validated = [DataLoader(torch.ones(2, 4), batch_size=2)] if model is Validated else []
    loaders = [Loader(8), *validated]
    trainer.fit(model(), *loaders)

    assert kept.batches == batches
    validates = model is Validated and options.get("limit_val_batches") != 0
    sizes = {"validation_batches": 1, "validation_batch_size": 2}
    workers = {"validation_workers": 0, "validation_persistent": False}
    assert validation(trainer) == ({**sizes, **workers} if validates else {})
