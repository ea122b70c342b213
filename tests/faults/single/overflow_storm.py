"""Every fourth step overflows under a GradScaler, and its update is thrown away."""

from pathlib import Path

from faults.base import Script
from faults.scaled import train_scaled


def _train(out: Path, *, fixed: bool) -> None:
    train_scaled(out, steps=80, overflows=lambda step: step % 4 == 3 and not fixed)


SCRIPT = Script(expected=("overflow",), train=_train)
