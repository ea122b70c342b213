"""Rare checkpoints, each of which takes as long as many steps."""

from pathlib import Path

from faults.base import script
from faults.pauses import train_pausing


@script("checkpoint")
def _train(out: Path, *, fixed: bool) -> None:
    train_pausing(out, save_every=20, save_s=0.01 if fixed else 0.3)
