"""A checkpoint after every second step."""

from pathlib import Path

from faults.base import script
from faults.pauses import STEPS, train_pausing


@script("checkpoint")
def _train(out: Path, *, fixed: bool) -> None:
    train_pausing(out, save_every=STEPS if fixed else 2)
