"""Samples come in turn, and fast."""

from pathlib import Path

from faults.base import Script
from faults.loads import InTurn, fit, loader


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    fit(out, loader(InTurn()))


SCRIPT = Script(train=_train)
