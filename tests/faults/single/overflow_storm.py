"""Every fourth step overflows under a GradScaler, and its update is thrown away."""

from pathlib import Path

from faults.base import script
from faults.scaled import train_scaled


@script("overflow")
def _train(out: Path, *, fixed: bool) -> None:
    train_scaled(out, steps=80, overflows=lambda step: step % 4 == 3 and not fixed)
