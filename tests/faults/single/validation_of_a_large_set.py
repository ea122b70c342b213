"""A held-out set as large as the training set, gone through four times an epoch."""

from pathlib import Path
from typing import Any

from faults.base import ready, script, train
from faults.models import Validated, perceptron


class Held(Validated):
    """Brings its validation data."""

    def val_dataloader(self) -> Any:
        """As many batches as an epoch has."""
        return ready(60, 256, 128)


@script("validation")
def _train(out: Path, *, fixed: bool) -> None:
    train(
        out,
        Held(perceptron(3, 256)),
        ready(60, 256, 128),
        audit_at=None,
        val_check_interval=60 if fixed else 15,
    )
