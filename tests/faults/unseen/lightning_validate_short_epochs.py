"""Tiny epochs, and a validation of the whole held-out set after each."""

from pathlib import Path

from faults.base import script, train
from faults.calm import Calm, Ready


class Held(Calm):
    """Brings its validation data."""

    def val_dataloader(self) -> Ready:
        """Fifteen batches."""
        return Ready(15)


@script("validation")
def _train(out: Path, *, fixed: bool) -> None:
    train(
        out,
        Held(),
        Ready(10),
        max_epochs=8,
        check_val_every_n_epoch=8 if fixed else 1,
        audit_at=None,
    )
