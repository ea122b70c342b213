"""Samples come in turn, and fast."""

from pathlib import Path

from faults.base import Script
from faults.loads import Fields, InTurn, Paced, fit, loader


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    fit(out, loader(InTurn()), module=Fields(Paced(0.030)))


SCRIPT = Script(train=_train)
