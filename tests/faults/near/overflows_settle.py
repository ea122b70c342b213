"""A scaler that finds its scale: the first nine steps overflow, and none after them."""

from pathlib import Path

from faults.base import script
from faults.scaled import train_scaled


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train_scaled(out, steps=80, overflows=lambda step: step < 9)
