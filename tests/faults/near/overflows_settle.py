"""A scaler that finds its scale: the first nine steps overflow, and none after them."""

from pathlib import Path

from faults.base import Script
from faults.scaled import train_scaled


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    train_scaled(out, steps=80, overflows=lambda step: step < 9)


SCRIPT = Script(train=_train)
