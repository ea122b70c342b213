"""A pass over the validation data after every fifth step."""

from pathlib import Path

from faults.base import Script
from faults.pauses import STEPS, train_pausing


def _train(out: Path, *, fixed: bool) -> None:
    train_pausing(out, validate_every=STEPS if fixed else 5, batches_validated=12)


SCRIPT = Script(expected=("validation",), train=_train)
