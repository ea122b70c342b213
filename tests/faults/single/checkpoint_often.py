"""A checkpoint after every second step."""

from pathlib import Path

from faults.base import Script
from faults.pauses import STEPS, train_pausing


def _train(out: Path, *, fixed: bool) -> None:
    train_pausing(out, save_every=STEPS if fixed else 2)


SCRIPT = Script(expected=("checkpoint",), train=_train)
