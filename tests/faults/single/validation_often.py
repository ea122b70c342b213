"""A pass over the validation data after every fifth step."""

from pathlib import Path

from faults.base import script
from faults.pauses import STEPS, train_pausing


@script("validation")
def _train(out: Path, *, fixed: bool) -> None:
    train_pausing(out, validate_every=STEPS if fixed else 5, batches_validated=12)
