"""Validated too often, and saved too often."""

from pathlib import Path

from faults.base import script
from faults.pauses import STEPS, train_pausing


@script("validation", "checkpoint")
def _train(out: Path, *, fixed: bool) -> None:
    seldom = STEPS if fixed else 5
    train_pausing(
        out,
        validate_every=seldom,
        batches_validated=12,
        save_every=seldom,
        save_s=0.01 if fixed else 0.04,
    )
