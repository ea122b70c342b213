"""Fits that stand still between steps: validation and checkpoints."""

import time
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint

from faults.base import train
from faults.calm import Calm, Ready


STEPS = 60


class Pausing(Calm):
    """A module that is validated on so many batches, and takes a while to be saved."""

    def __init__(self, batches: int, save_s: float) -> None:
        super().__init__()
        self._batches = batches
        self._save_s = save_s

    def val_dataloader(self) -> Any:
        """As large as those of training."""
        return Ready(self._batches)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As a slow file system would."""
        time.sleep(self._save_s)


def train_pausing(
    out: Path,
    *,
    validate_every: int = STEPS,
    batches_validated: int = 2,
    save_every: int = STEPS,
    save_s: float = 0.01,
) -> None:
    """A fit that is validated and saved every so many steps."""
    saving = ModelCheckpoint(out / "kept", every_n_train_steps=save_every, save_top_k=-1)
    train(
        out,
        Pausing(batches_validated, save_s),
        Ready(STEPS),
        audit_at=None,
        val_check_interval=validate_every,
        callbacks=[saving],
        enable_checkpointing=True,
    )
